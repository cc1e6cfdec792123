package collector

import (
	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/trace"
)

const (
	// tracingMaxUnanswered bounds the requests without an answer that the trace collector has not taken yet.
	tracingMaxUnanswered = 4096
	// tracingLate is the age from which a request without an answer is reported: most have one soon.
	tracingLate = uint64(250e6)
)

// toldReplicas is what is reported to the trace collector of engines' requests to replicas, beside the programs'
// events.
type toldReplicas struct {
	// unseen counts what happened on a storage wire that the programs could not report.
	unseen func() (uint64, error)
	// followed reports whether an operation's process is followed yet.
	followed func(process uint32) bool
	// unanswered are requests without an answer; crowded is when the first of those began that found no room, 0 if all
	// did.
	unanswered []trace.Event
	crowded    uint64
}

// seenReplicas sets the functions that return what the programs on a storage wire could not report, and whether they
// follow a process; nil ends that.
func (t *Tracing) seenReplicas(unseen func() (uint64, error), followed func(process uint32) bool) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.replicas.unseen, t.replicas.followed = unseen, followed
}

// followed reports whether an operation's process is followed yet.
func (t *Tracing) followed(process uint32) bool {
	t.mu.Lock()
	f := t.replicas.followed
	t.mu.Unlock()
	return f != nil && f(process)
}

// unseen counts what happened on a storage wire that the programs could not report.
func (t *Tracing) unseen() (uint64, error) {
	t.mu.Lock()
	f := t.replicas.unseen
	t.mu.Unlock()
	if f == nil {
		return 0, nil
	}
	return f()
}

// unanswered reports a request that has no answer until the event's end.
func (t *Tracing) unanswered(e trace.Event) {
	if !t.on() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if r := &t.replicas; len(r.unanswered) < tracingMaxUnanswered {
		r.unanswered = append(r.unanswered, e)
	} else if r.crowded == 0 || e.Start < r.crowded {
		r.crowded = e.Start
	}
}

// takeUnanswered returns the requests that were reported since the last time, and when the first of those began that
// found no room.
func (t *Tracing) takeUnanswered() (all []trace.Event, crowded uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &t.replicas
	all, crowded = r.unanswered, r.crowded
	r.unanswered, r.crowded = nil, 0
	return all, crowded
}

// replicaUntold are the events after which an operation is missing that the programs would have reported. What was
// never in step, such as a connection of somebody else, is none of them.
var replicaUntold = []replica.Event{replica.EventResync, replica.EventUnmatched, replica.EventLostConnection, replica.EventLostRequest, replica.EventLostFault}

// untold counts what happened that the programs could not report.
func (f *replicaFollower) untold() (n uint64, err error) {
	events, err := f.kernel.events()
	for _, e := range replicaUntold {
		n += events[e]
	}
	return n, err
}

// isFollowed reports whether the process with this number is followed yet.
func (f *replicaFollower) isFollowed(process uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bySlot[process] != nil
}

// tellUnanswered reports an engine's request to a replica that has no answer until now.
func (f *replicaFollower) tellUnanswered(id uint64, o *replica.Operation, peers map[uint32]replica.PeerKey, now uint64) {
	if replica.View(o.View) != replica.ViewRequest || replica.Ops[o.Op] == "ping" {
		return
	}
	f.options.Tracing.unanswered(trace.Event{
		Kind: trace.KindOperation, How: o.View, What: o.Op, Start: o.Start, End: max(now, o.Start), Request: id, Offset: o.Offset, Size: o.Size,
		Of: o.Slot, Peer: o.Peer, RemotePort: peers[o.Peer].Port,
	})
}
