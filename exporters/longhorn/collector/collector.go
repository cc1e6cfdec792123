// Package collector holds longhorn_exporter's collectors, one per file: engine (what each volume's engine reports),
// replica (what each replica reports and where it is), volume and node (what Longhorn's Kubernetes objects hold).
package collector

import (
	"context"
	"log/slog"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// Options is what every collector is given; the roots exist so that tests run on fixtures.
type Options struct {
	Log *slog.Logger
	// Node is this machine's name: the node label of replicas that the targets file lists.
	Node string
	// ProcFS, SysFS and RootFS are the roots of procfs, sysfs and the host's file system. They are used to trace a
	// replica's directory to its disk.
	ProcFS, SysFS, RootFS string
	// Fleet polls the engines and replicas for all collectors.
	Fleet *Fleet
	// Cluster knows Longhorn's objects; nil without Kubernetes.
	Cluster *Cluster
}

func (o Options) finder() *disk.Finder {
	return &disk.Finder{ProcFS: o.ProcFS, SysFS: o.SysFS, RootFS: o.RootFS}
}

// Collector is one of the exporter's collectors.
type Collector interface {
	exporterkit.Collector
	// Check waits until everything to be observed was queried once, and reports it.
	Check(ctx context.Context) []exporterkit.CheckResult
}

// Entry is a collector the exporter knows.
type Entry struct {
	Name    string
	Help    string
	Default bool
	// Cluster is set if the collector has nothing to observe without Kubernetes.
	Cluster bool
	New     func(Options) Collector
}

// All lists the collectors. A new collector is a new file and one line here.
func All() []Entry {
	return []Entry{
		{"engine", "Volumes' engines: sampled I/O, replica modes, size, expansion, snapshots.", true, false, NewEngine},
		{"replica", "Replicas: where they are, whether they answer, rebuilds, head size, revision.", true, false, NewReplica},
		{"volume", "Volumes' objects: state, robustness, conditions, replicas. On Kubernetes only.", true, true, NewVolumes},
		{"node", "Longhorn's disks and instance managers. On Kubernetes only.", true, true, NewNodes},
	}
}

// Poll holds how often remote sides are queried, and with which timeout.
type Poll struct {
	// EngineInterval must stay under the engine's window of one second, or windows are missed.
	EngineInterval time.Duration
	// StateInterval is the time between two polls of an engine's and a replica's state.
	StateInterval time.Duration
	// Timeout bounds each call.
	Timeout time.Duration
}
