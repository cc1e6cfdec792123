package collector

import (
	"fmt"
	"sync"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/trace"
)

// TraceHelpers bounds the tasks, beside the servers' own, whose sleeps are reported: the entries of the map helpers.
const TraceHelpers = 1024

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
	replicas replicaReports
}

// Share makes the maps the ones that programs are loaded with from now on; nil ends that.
func (t *Tracing) Share(all map[string]*ebpf.Map) {
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

// On reports whether programs are to report events.
func (t *Tracing) On() bool {
	if t == nil {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shared != nil
}

// Named sets the functions that return a server's names by its number in events, and which servers run.
func (t *Tracing) Named(label func(uint32) (label, engine string), running func() map[string]bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.label, t.running = label, running
}

// NamedReplicas sets the function that returns a replica's name by the numbers in events.
func (t *Tracing) NamedReplicas(replica func(process, peer uint32) string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replica = replica
}

// ReplicaName is what metrics call a replica of an event; empty if that is not known.
func (t *Tracing) ReplicaName(process, peer uint32) string {
	t.mu.Lock()
	f := t.replica
	t.mu.Unlock()
	if f == nil {
		return ""
	}
	return f(process, peer)
}

// Servers are the labels of the servers that run.
func (t *Tracing) Servers() map[string]bool {
	t.mu.Lock()
	f := t.running
	t.mu.Unlock()
	if f == nil {
		return nil
	}
	return f()
}

// Server returns the label and engine of a server by its number; empty if they are not known.
func (t *Tracing) Server(number uint32) (label, engine string) {
	t.mu.Lock()
	f := t.label
	t.mu.Unlock()
	if f == nil {
		return "", ""
	}
	return f(number)
}

// Load loads an object whose programs follow calls on sockets and may report events. Without tracing the verifier takes
// the latter out of them.
func (t *Tracing) Load(spec *ebpf.CollectionSpec, dispatch *platform.Dispatcher) (*ebpf.Collection, error) {
	if !t.On() {
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

// tracingMaxUnanswered bounds the requests without an answer that the trace collector has not taken yet.
const tracingMaxUnanswered = 4096

// replicaReports is what is reported to the trace collector of engines' requests to replicas, beside the programs'
// events.
type replicaReports struct {
	// unseen counts what happened on a storage wire that the programs could not report.
	unseen func() (uint64, error)
	// followed reports whether an operation's process is followed yet.
	followed func(process uint32) bool
	// unanswered are requests without an answer; overflowed is when the first of those began that found no room, 0 if all
	// did.
	unanswered []trace.Event
	overflowed uint64
}

// SeenReplicas sets the functions that return what the programs on a storage wire could not report, and whether they
// follow a process; nil ends that.
func (t *Tracing) SeenReplicas(unseen func() (uint64, error), followed func(process uint32) bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas.unseen, t.replicas.followed = unseen, followed
}

// Followed reports whether an operation's process is followed yet.
func (t *Tracing) Followed(process uint32) bool {
	t.mu.Lock()
	f := t.replicas.followed
	t.mu.Unlock()
	return f != nil && f(process)
}

// Unseen counts what happened on a storage wire that the programs could not report.
func (t *Tracing) Unseen() (uint64, error) {
	t.mu.Lock()
	f := t.replicas.unseen
	t.mu.Unlock()
	if f == nil {
		return 0, nil
	}
	return f()
}

// Unanswered reports a request that has no answer until the event's end.
func (t *Tracing) Unanswered(e trace.Event) {
	if !t.On() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := &t.replicas; len(r.unanswered) < tracingMaxUnanswered {
		r.unanswered = append(r.unanswered, e)
	} else if r.overflowed == 0 || e.Start < r.overflowed {
		r.overflowed = e.Start
	}
}

// TakeUnanswered returns the requests that were reported since the last time, and when the first of those began that
// found no room.
func (t *Tracing) TakeUnanswered() (all []trace.Event, overflowed uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.replicas
	all, overflowed = r.unanswered, r.overflowed
	r.unanswered, r.overflowed = nil, 0
	return all, overflowed
}
