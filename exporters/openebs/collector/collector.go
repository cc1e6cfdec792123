// Package collector holds openebs_exporter's collectors, one per file: mayastor (the
// replicated engine's REST API), ioengine (its nodes' gRPC), diskpool, cstor, jiva and
// localpv (Kubernetes objects).
package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Backend names, as in the label "backend" of the shared vocabulary.
const (
	BackendMayastor = "mayastor"
	BackendCStor    = "cstor"
	BackendJiva     = "jiva"
	BackendHostpath = "localpv-hostpath"
	BackendLVM      = "localpv-lvm"
	BackendZFS      = "localpv-zfs"
)

// States of every engine.
var (
	volumeState = prometheus.NewDesc("plumbline_openebs_volume_state",
		"The volume's state, as its engine names it: 1 for the one it is in, else 0; all 0 if it is in one that is not known here.",
		[]string{"volume", "backend", "state"}, nil)
	replicaState = prometheus.NewDesc("plumbline_openebs_replica_state",
		"A replica's state, as its engine names it: 1 for the one it is in, else 0; all 0 if it is in one that is not known here, or if nobody reports it any more, as when its node is dead.",
		[]string{"volume", "replica", "backend", "state"}, nil)
	poolState = prometheus.NewDesc("plumbline_openebs_pool_state",
		"A pool's state, as its engine names it: 1 for the one it is in, else 0; all 0 if it is in one that is not known here, or, except of Mayastor's (Unknown), if nobody reports it any more, as when its node is dead.",
		[]string{"node", "pool", "backend", "state"}, nil)
)

// Options is what every collector is given.
type Options struct {
	Log *slog.Logger
	// Node is the name of the node this runs on; paths are traced to devices on it only.
	Node string
	// ProcFS, SysFS and RootFS are the roots of procfs, sysfs and the host's file system.
	ProcFS, SysFS, RootFS string
	// Objects knows the Kubernetes objects; nil without Kubernetes.
	Objects *kube.Objects
	// Mayastor is the REST API's address, as http://host:8081; empty for none.
	Mayastor string
	// Interval is the time between two polls, Timeout the bound of each call.
	Interval, Timeout time.Duration
}

// Collector is one of the exporter's collectors.
type Collector interface {
	exporterkit.Collector
	// Start begins to observe in the background, until ctx ends, and returns at once.
	Start(ctx context.Context) error
	// Check waits until everything to be observed was queried once, and reports it.
	Check(ctx context.Context) []exporterkit.CheckResult
}

// Entry is a collector the exporter knows.
type Entry struct {
	Name    string
	Help    string
	Default bool
	// Needs is what the collector cannot work without: "mayastor" or "kubernetes".
	Needs string
	New   func(Options) Collector
}

// All lists the collectors. A new collector is a new file and one line here.
func All() []Entry {
	return []Entry{
		{"mayastor", "Mayastor's volumes, replicas, pools and nodes, through its REST API.", true, "mayastor", NewMayastor},
		{"ioengine", "Why Mayastor's children fault and how rebuilds go, from each node's io-engine.", true, "mayastor", NewIOEngine},
		{"localpv", "LocalPV hostpath, LVM and ZFS: volume to node, pool and device.", true, "kubernetes", NewLocalPV},
		{"diskpool", "DiskPool objects of Mayastor.", false, "kubernetes", NewDiskPool},
		{"cstor", "cStor volumes, replicas and pools.", false, "kubernetes", NewCStor},
		{"jiva", "Jiva volumes and replicas.", false, "kubernetes", NewJiva},
	}
}

// states sends one series per known state. An unknown one gives zeros only.
func states(ch chan<- prometheus.Metric, d *prometheus.Desc, current string, known []string, labels ...string) {
	for _, s := range known {
		exporterkit.Gauge(ch, d, truth(s == current), append(append([]string{}, labels...), s)...)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	exporterkit.Gauge(ch, d, value, labels...)
}
