// Package collector holds the node agent's collectors, one per file group: volume (which block device is which volume),
// device (which has requests and gets nowhere), disk (who uses which), query (where a statement's time goes), replica (what each replica of a
// volume adds), nvme and iscsi (the same for volumes over NVMe over Fabrics and iSCSI) and trace (one statement through
// all layers).
package collector

import (
	"context"
	"log/slog"

	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Options is what every collector is given; the roots exist so that tests run on fixtures.
type Options struct {
	Log *slog.Logger
	// Node is the value of the node label: the Kubernetes node's name, else the host's.
	Node string
	// ProcFS and SysFS are the roots of procfs and sysfs as the host's PID 1 sees them.
	ProcFS, SysFS string
	// Volumes knows the node's volumes.
	Volumes *volume.Node
	// Controls are the storage classes that the others are compared with; nil is none.
	Controls *volume.Controls
	// Pods knows the node's pods; nil where there is no Kubernetes.
	Pods *pod.Node
	// Calls makes the calls that may hang with another process's memory or file system, for all
	// collectors together; nil is one for each.
	Calls *foreign.Calls
	// Dispatcher is shared by the collectors that look at calls on sockets; nil is one for each.
	Dispatcher *platform.Dispatcher
	// Boundary is how programs shall watch calls on sockets; empty is the way that fits the kernel.
	Boundary platform.Boundary
	// Query are the query collector's own options.
	Query QueryOptions
	// NVMe and ISCSI are the own ones of the collectors nvme and iscsi.
	NVMe, ISCSI FabricOptions
	// Trace are the trace collector's own.
	Trace TraceOptions
	// Disk are the disk collector's own.
	Disk DiskOptions
	// Replicas are the replicas on this node, which the collector replica finds, and Servers the database servers, which
	// query finds; nil if nobody reads them.
	Replicas *Replicas
	Servers  *Servers
	// Tracing is what the trace collector shares with the collectors whose programs send it events; nil if it is off.
	Tracing *Tracing
}

// calls returns Calls, or new ones.
func (o Options) calls() *foreign.Calls {
	if o.Calls != nil {
		return o.Calls
	}
	return foreign.NewCalls(foreign.DefaultPatience, foreign.DefaultHanging)
}

// dispatcher returns Dispatcher, or a new one.
func (o Options) dispatcher() *platform.Dispatcher {
	if o.Dispatcher != nil {
		return o.Dispatcher
	}
	return NewDispatcher(o.ProcFS)
}

// Collector is one of the agent's collectors.
type Collector interface {
	exporterkit.Collector
	// Start attaches to the kernel and begins to follow processes and devices; it returns
	// once the collector measures. What can be lost later is counted, not returned.
	Start(ctx context.Context) error
	// Check reports, after Start, what works here and what does not, for --check.
	Check() []exporterkit.CheckResult
	// Close detaches from the kernel and frees everything.
	Close() error
}

// Factory makes a collector from Options; it touches nothing outside before Start.
type Factory func(Options) (Collector, error)

// Entry is a collector the agent knows.
type Entry struct {
	Name    string
	Help    string
	Default bool
	New     Factory
}

// All lists the agent's collectors. A new collector is a new file and one line here.
func All() []Entry {
	return []Entry{
		// Before query and replica, whose programs write to its ring.
		{"trace", "Statements followed through the layers, one by one: which part of a commit is which layer's, and the slowest as pictures at /slowest. Needs the collector query; costs 1 us for each sleep and block request.", false, NewTrace},
		{"volume", "Which block device is which volume, claim and storage class.", true, NewVolume},
		{"device", "Which block devices have requests and complete none.", true, NewDevice},
		{"disk", "Who uses which disk: requests, bytes and time in the device by pod, replica and the kernel's own work.", true, NewDisk},
		{"query", "How long database statements take and where their time goes.", true, NewQuery},
		{"replica", "How long each replica of a volume takes, and what replication adds.", true, NewReplica},
		{"nvme", "How long volumes over NVMe over Fabrics take on each path, and where this node serves them.", true, NewNVMe},
		{"iscsi", "How long volumes over iSCSI take in each session, and where this node serves them.", true, NewISCSI},
	}
}
