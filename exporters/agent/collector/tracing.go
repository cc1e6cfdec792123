package collector

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// traceHelpers bounds the tasks, beside the servers' own, whose sleeps are reported: the entries of the map helpers.
const traceHelpers = 1024

// tracingMaps are the maps that all programs that report events share: bpf/trace.h.
var tracingMaps = []string{"trace_events", "trace_lost", "trace_completing"}

// Tracing is what the trace collector shares with the collectors whose programs send it events. nil is no tracing.
type Tracing struct {
	mu     sync.Mutex
	shared map[string]*ebpf.Map
	label  func(number uint32) (label, engine string)
	// running are the labels of the servers that run.
	running func() map[string]bool
	// replica names a replica by an operation's process and peer.
	replica  func(process, peer uint32) string
	replicas toldReplicas
}

// share makes the maps the ones that programs are loaded with from now on; nil ends that.
func (t *Tracing) share(all map[string]*ebpf.Map) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.shared = nil
	if all == nil {
		return
	}
	t.shared = map[string]*ebpf.Map{}
	for _, name := range tracingMaps {
		t.shared[name] = all[name]
	}
}

// on reports whether programs are to report events.
func (t *Tracing) on() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shared != nil
}

// named sets the functions that return a server's names by its number in events, and which servers run.
func (t *Tracing) named(label func(uint32) (label, engine string), running func() map[string]bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.label, t.running = label, running
}

// namedReplicas sets the function that returns a replica's name by the numbers in events.
func (t *Tracing) namedReplicas(replica func(process, peer uint32) string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replica = replica
}

// replicaName is what metrics call a replica of an event; empty if that is not known.
func (t *Tracing) replicaName(process, peer uint32) string {
	t.mu.Lock()
	f := t.replica
	t.mu.Unlock()
	if f == nil {
		return ""
	}
	return f(process, peer)
}

// servers are the labels of the servers that run.
func (t *Tracing) servers() map[string]bool {
	t.mu.Lock()
	f := t.running
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

// server returns the label and engine of a server by its number; empty if they are not known.
func (t *Tracing) server(number uint32) (label, engine string) {
	t.mu.Lock()
	f := t.label
	t.mu.Unlock()
	if f == nil {
		return "", ""
	}
	return f(number)
}

// load loads an object whose programs look at calls on sockets and may report events. Without tracing the verifier takes
// the latter out of them.
func (t *Tracing) load(spec *ebpf.CollectionSpec, dispatch *platform.Dispatcher) (*ebpf.Collection, error) {
	if !t.on() {
		return dispatch.Load(spec, nil)
	}
	if err := spec.Variables["tracing"].Set(true); err != nil {
		return nil, fmt.Errorf("reading BPF programs: %w", err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, m := range t.shared {
		spec.Maps[name].MaxEntries = m.MaxEntries()
	}
	return dispatch.Load(spec, t.shared)
}
