package replica

import (
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/trace"
)

const (

	// tracingLate is the age from which a request without an answer is reported: most have one soon.
	tracingLate = uint64(250e6)
)

// unreportedEvents are the events after which an operation is missing that the programs would have reported. What was
// never in step, such as a connection of somebody else, is none of them.
var unreportedEvents = []bpf.Event{bpf.EventResync, bpf.EventUnmatched, bpf.EventLostConnection, bpf.EventLostRequest, bpf.EventLostFault}

// unreported counts what happened that the programs could not report.
func (f *replicaFollower) unreported() (n uint64, err error) {
	events, err := f.kernel.events()
	for _, e := range unreportedEvents {
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

// reportUnanswered reports an engine's request to a replica that has no answer until now.
func (f *replicaFollower) reportUnanswered(id uint64, o *bpf.Operation, peers map[uint32]bpf.PeerKey, now uint64) {
	if operation.View(o.View) != operation.ViewRequest || operation.Ops[o.Op] == "ping" {
		return
	}
	f.options.Tracing.Unanswered(trace.Event{
		Kind: trace.KindOperation, ReasonOrView: o.View, Subtype: o.Op, Start: o.Start, End: max(now, o.Start), Request: id, Offset: o.Offset, Size: o.Size,
		Owner: o.Slot, Peer: o.Peer, RemotePort: peers[o.Peer].Port,
	})
}
