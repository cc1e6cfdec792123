package trace

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

const second = 1000000 // us

// peerAt is a request to the replica with this number.
func peerAt(n uint32) func(*Event) {
	return func(e *Event) { e.Peer, e.LocalPort, e.RemotePort = n, uint16(40000+n), uint16(10000+n) }
}

// replicatedWrite is a statement's write that began at a time, and that these replicas have answered.
func replicatedWrite(s *stream, at, took uint64, replicas ...uint32) {
	for _, n := range replicas {
		s.operation(viewRequest, at+30, at+80, peerAt(n))
	}
	s.operation(viewFrontend, at+20, at+took-10, nil)
	s.request(0xa, at, at+10, at+took, nil)
	s.wait(1, waitSync, at, at+took, at+took, byRequest(0xa, at+took))
	s.statement(1, at, at+took)
}

// settledWrite is the chain of such a write.
func settledWrite(t *testing.T, s *stream, at, took uint64, replicas ...uint32) *Chain {
	t.Helper()
	replicatedWrite(s, at, took, replicas...)
	chains := s.Advance((at+took)*us + settling)
	if len(chains) != 1 {
		t.Fatalf("%d chains, want 1", len(chains))
	}
	return chains[0]
}

// A write that one of the engine's replicas never answered is not the engine's, however many others have.
func TestReplicaWithoutAnswer(t *testing.T) {
	s := newStream(t, Options{})
	if c := settledWrite(t, s, 1*second, 100, 1, 2, 3); c.Verdict() != Exact {
		t.Fatalf("%s %v", c.Verdict(), c.Reasons)
	}
	// The volume did nothing for an hour.
	c := settledWrite(t, s, 3600*second, 8*second, 1, 2)
	if c.Verdict() != Incomplete || !slices.Equal(c.Reasons, []Reason{CopiesUnseen}) {
		t.Errorf("%s %v, want a copy that was not seen", c.Verdict(), c.Reasons)
	}
	// The engine goes on without it: for a while that looks like a replica that does not answer.
	for i := uint64(0); i < 90; i++ {
		replicatedWrite(s, (3610+i)*second, 100, 1, 2)
	}
	chains := s.Advance(3700*second*us + settling)
	if first, last := chains[0], chains[len(chains)-1]; first.Verdict() != Incomplete || last.Verdict() != Exact {
		t.Errorf("at first %s %v, later %s %v", first.Verdict(), first.Reasons, last.Verdict(), last.Reasons)
	}
	// A replica more: writes from before it came are complete without it.
	replicatedWrite(s, 3800*second, 100, 1, 2)
	replicatedWrite(s, 3800*second+200, 100, 1, 2, 4)
	for _, c := range s.Advance(3801*second*us + settling) {
		if c.Verdict() != Exact {
			t.Errorf("%s %v with a new replica", c.Verdict(), c.Reasons)
		}
	}
	if c := settledWrite(t, s, 3900*second, 8*second, 1, 2); c.Verdict() != Incomplete {
		t.Errorf("%s without the new replica", c.Verdict())
	}
}

// A reported request without an answer is a step of the chain as far as it is known, of a read, too.
func TestUnanswered(t *testing.T) {
	for name, op := range map[string]uint8{"write": opWrite, "read": opRead} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{})
			does := func(e *Event) { e.Subtype = op }
			s.operation(viewRequest, 130, 7000, func(e *Event) { peerAt(1)(e); does(e) })
			s.operation(viewFrontend, 120, 8000, does)
			s.request(0xa, 100, 110, 8010, func(e *Event) {
				if op == opRead {
					e.Subtype = blockRead
				}
			})
			s.wait(1, waitSync, 100, 8010, 8010, byRequest(0xa, 8010))
			s.statement(1, 100, 8010)
			q := Event{Kind: KindOperation, ReasonOrView: viewRequest, Subtype: op, Owner: engine, Request: 6, Offset: 1 << 20, Size: 8192, Start: 140 * us}
			peerAt(2)(&q)
			for end := uint64(3000); end <= 7500; end += 1500 {
				q.End = end * us
				s.Unanswered(q)
			}
			c := s.chain()
			want(t, c, Incomplete, []Reason{CopiesUnseen}, map[string]uint64{layers.Queue: 10, layers.Device: 20, layers.Engine: 10 + 500, layers.Network: 7370})
			var named []string
			for _, step := range c.Report(time.Unix(1000, 0)).Steps {
				if strings.Contains(step.What, "without an answer") {
					named = append(named, step.What)
				}
			}
			if !slices.Equal(named, []string{"request to replica at port 10002, without an answer"}) {
				t.Errorf("%q", named)
			}
		})
	}
}

// A request that was reported while it was under way, and then answered, is the same request, in either order.
func TestAnsweredLate(t *testing.T) {
	for name, late := range map[string]bool{"reported before its answer": false, "reported after its answer": true} {
		t.Run(name, func(t *testing.T) {
			c := written(t, func(s *stream) {
				q := Event{Kind: KindOperation, ReasonOrView: viewRequest, Subtype: opWrite, Owner: engine, Request: 5, Offset: 1 << 20, Size: 8192, Start: 140 * us, End: 300 * us}
				if !late {
					s.Unanswered(q)
				}
				s.operation(viewRequest, 140, 350, nil)
				if late {
					s.Unanswered(q)
				}
				s.operation(viewFrontend, 130, 380, nil)
			})
			want(t, c, Exact, nil, map[string]uint64{layers.Queue: 10, layers.Device: 40, layers.Engine: 10 + 30, layers.Network: 210})
		})
	}
}

// What is kept of engines and of requests without an answer is bounded.
func TestCopiesBounds(t *testing.T) {
	s := newStream(t, Options{})
	for i := range uint32(2 * maxWriters) {
		s.operation(viewRequest, uint64(i), uint64(i)+1, func(e *Event) { e.Owner = i })
		s.operation(viewRequest, uint64(i), uint64(i)+1, func(e *Event) { e.Owner, e.Peer = 2*maxWriters-1, i })
		s.Unanswered(Event{Owner: i, Start: 1, End: 2})
	}
	w := s.writers[2*maxWriters-1]
	if len(s.writers) != maxWriters || w == nil || len(w.replicas) != maxCopies || len(s.unanswered) != maxUnanswered {
		t.Errorf("%d engines, %d requests without an answer, %+v", len(s.writers), len(s.unanswered), w)
	}
	if s.Advance(uint64(1e15)); len(s.unanswered) != 0 {
		t.Errorf("%d requests without an answer are kept for ever", len(s.unanswered))
	}
	if len(s.lost) == 0 {
		t.Error("requests for which there was no room are not reported")
	}
}

// What happened while a storage wire's operations went by unseen is not exact, but no event was lost in the ring.
func TestMissed(t *testing.T) {
	c := written(t, func(s *stream) {
		copies(s)
		s.operation(viewFrontend, 130, 380, nil)
		s.Missed(300*us, 350*us)
		if n := s.Counts().Lost; n != 0 {
			t.Errorf("%d events lost", n)
		}
	})
	if c.Verdict() != Incomplete || !slices.Equal(c.Reasons, []Reason{LostEvents}) {
		t.Errorf("%s %v", c.Verdict(), c.Reasons)
	}
}

// Requests that were answered while it was on its way that they are not take no room.
func TestAnsweredMeanwhile(t *testing.T) {
	s := newStream(t, Options{})
	for i := range uint64(2 * maxUnanswered) {
		at := 1000 + 10*i
		var reported Event
		s.operation(viewRequest, at, at+400, func(e *Event) { e.Request, reported = i, *e; reported.Request, reported.End = i, (at+300)*us })
		s.Unanswered(reported)
	}
	if len(s.unanswered) != 0 || len(s.lost) != 0 {
		t.Errorf("%d requests without an answer, losses %v", len(s.unanswered), s.lost)
	}
}

// Losses may be reported in any order: each is kept, and adjacent ones are merged.
func TestMissedInAnyOrder(t *testing.T) {
	s := newStream(t, Options{})
	for _, l := range []loss{{50, 60}, {10, 20}, {30, 35}, {15, 31}, {70, 80}, {55, 56}, {1, 2}} {
		s.Missed(l.from, l.to)
	}
	if want := []loss{{1, 2}, {10, 35}, {50, 60}, {70, 80}}; !slices.Equal(s.lost, want) {
		t.Errorf("%v, want %v", s.lost, want)
	}
	s.Missed(0, 100)
	if !slices.Equal(s.lost, []loss{{0, 100}}) {
		t.Errorf("%v", s.lost)
	}
}
