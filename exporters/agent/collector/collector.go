// Package collector is what the node agent's collectors share: their options, how they export series and run, and what
// one of them finds for others.
package collector

import (
	"context"
	"log/slog"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
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
	Calls *untrusted.Calls
	// Dispatcher is shared by the collectors that follow calls on sockets; nil is one for each.
	Dispatcher *platform.Dispatcher
	// AttachMode is how programs shall watch calls on sockets; empty is the way that fits the kernel.
	AttachMode platform.AttachMode
	// Replicas are the replicas on this node, which the collector replica finds, and Servers the database servers, which
	// query finds; nil if nobody reads them.
	Replicas *Replicas
	Servers  *Servers
	// Tracing is what the trace collector shares with the collectors whose programs send it events; nil if it is off.
	Tracing *Tracing
}

// SharedCalls returns Calls, or new ones.
func (o Options) SharedCalls() *untrusted.Calls {
	if o.Calls != nil {
		return o.Calls
	}
	return untrusted.NewCalls(untrusted.DefaultTimeout, untrusted.DefaultHanging)
}

// SharedDispatcher returns Dispatcher, or a new one.
func (o Options) SharedDispatcher() *platform.Dispatcher {
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

// Pager is a collector with pages of its own beside its metrics.
type Pager interface {
	Pages() []exporterkit.Page
}
