package trace

import (
	"slices"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

// written is a statement that waited for one write of a device, with an engine's operations as events adds them.
func written(t *testing.T, events func(*stream)) *Chain {
	s := newStream(t, Options{})
	events(s)
	s.request(0xa, 100, 110, 400, nil)
	s.wait(1, waitSync, 100, 400, 400, byRequest(0xa, 400))
	s.statement(1, 100, 400)
	return s.chain()
}

// copies are the engine's requests to two replicas; one of them is on this node, with its own disk.
func copies(s *stream) {
	s.operation(viewRequest, 140, 200, func(e *Event) { e.LocalPort, e.RemotePort = 40000, 10001 })
	s.operation(viewRequest, 145, 350, func(e *Event) { e.LocalPort, e.RemotePort = 40001, 10002 })
	s.request(0xb, 210, 215, 300, func(e *Event) { e.Owner, e.Tgid, e.Offset, e.CallOffset = other, 500, 77<<20, 1<<20 })
	s.operation(viewService, 200, 345, func(e *Event) { e.Owner, e.Tgid, e.LocalPort, e.RemotePort = engine+1, 500, 10002, 40001 })
}

// The request is followed to the replica that answered last, and to its disk.
func TestReplicas(t *testing.T) {
	c := written(t, func(s *stream) {
		copies(s)
		s.operation(viewFrontend, 130, 380, nil)
	})
	want(t, c, Exact, nil, map[string]uint64{
		layers.Queue: 10, layers.Device: 20 + 20, layers.Engine: 10 + 30, // before the first request, and after the last answer
		layers.Network: 5 + 55 + 5, layers.Replica: 10 + 45, layers.Disk: 5 + 85,
	})
}

// A replica has the name that metrics have for it, if there is one.
func TestReplicaNames(t *testing.T) {
	for name, c := range map[string]struct {
		named func(process, peer uint32) string
		want  []string
	}{
		"nobody knows it": {nil, []string{"request to replica at port 10001", "request to replica at port 10002", "replica at port 10002"}},
		"the engine's": {func(process, peer uint32) string {
			if process == engine && peer == 8 {
				return "10.42.1.7:10000"
			}
			return ""
		}, []string{"request to replica at port 10001", "request to replica 10.42.1.7:10000", "replica at port 10002"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{Replica: c.named})
			s.operation(viewRequest, 140, 200, func(e *Event) { e.LocalPort, e.RemotePort, e.Peer = 40000, 10001, 7 })
			s.operation(viewRequest, 145, 350, func(e *Event) { e.LocalPort, e.RemotePort, e.Peer = 40001, 10002, 8 })
			s.operation(viewService, 200, 345, func(e *Event) { e.Owner, e.LocalPort, e.RemotePort, e.Peer = engine+1, 10002, 40001, 8 })
			s.operation(viewFrontend, 130, 380, nil)
			s.request(0xa, 100, 110, 400, nil)
			s.wait(1, waitSync, 100, 400, 400, byRequest(0xa, 400))
			s.statement(1, 100, 400)
			var got []string
			for _, step := range s.chain().Report(time.Unix(1000, 0)).Steps {
				if step.Layer == layers.Network || step.Layer == layers.Replica {
					got = append(got, step.What)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A request that was split below has both its parts.
func TestSplitRequest(t *testing.T) {
	part := func(at uint64) func(*Event) {
		return func(e *Event) { e.Offset, e.Size = 1<<20+at, 4096 }
	}
	c := written(t, func(s *stream) {
		for i := uint64(0); i < 2; i++ {
			s.operation(viewRequest, 130+100*i, 200+100*i, part(4096*i))
			s.operation(viewFrontend, 120+100*i, 210+100*i, part(4096*i))
		}
	})
	want(t, c, Exact, nil, map[string]uint64{layers.Queue: 10, layers.Device: 10 + 10 + 90, layers.Engine: 20 + 20, layers.Network: 140})
}

// Of two operations that would fit none is taken.
func TestAmbiguous(t *testing.T) {
	volume := func(slot uint32) func(*Event) { return func(e *Event) { e.Owner = slot } }
	for name, c := range map[string]struct {
		events func(*stream)
		reason Reason
	}{
		"two volumes": {func(s *stream) {
			s.operation(viewFrontend, 130, 380, nil)
			s.operation(viewFrontend, 135, 380, volume(99))
		}, TwoOperations},
		"two operations of one volume": {func(s *stream) {
			s.operation(viewFrontend, 130, 200, nil)
			s.operation(viewFrontend, 220, 380, nil)
		}, TwoOperations},
		"another device's request fits, too": {func(s *stream) {
			s.request(0xc, 105, 110, 390, func(e *Event) { e.Owner = other })
			s.operation(viewFrontend, 130, 380, nil)
		}, TwoRequests},
		"two writes to one extent": {func(s *stream) {
			copies(s)
			s.operation(viewFrontend, 130, 380, nil)
			s.operation(viewFrontend, 90, 140, nil) // begun before the device had the request
		}, TwoFrontends},
	} {
		t.Run(name, func(t *testing.T) {
			got := written(t, c.events)
			if got.Verdict() != Ambiguous || got.Reasons[0] != c.reason {
				t.Errorf("%s %v, want ambiguous %s", got.Verdict(), got.Reasons, c.reason)
			}
		})
	}
}

// A device that an engine serves has an operation for each request.
func TestOperationUnseen(t *testing.T) {
	s := newStream(t, Options{})
	at := func(offset uint64) func(*Event) { return func(e *Event) { e.Offset = offset } }
	s.operation(viewRequest, 130, 190, nil)
	s.operation(viewFrontend, 120, 195, nil)
	s.request(0xa, 100, 110, 200, nil)
	s.wait(1, waitSync, 100, 200, 200, byRequest(0xa, 200))
	s.statement(1, 100, 200)
	if c := s.chain(); c.Verdict() != Exact {
		t.Fatalf("%s %v", c.Verdict(), c.Reasons)
	}
	s.request(0xa, 300, 310, 400, at(5<<20))
	s.wait(1, waitSync, 300, 400, 400, byRequest(0xa, 400))
	s.statement(1, 300, 400)
	if c := s.chain(); c.Verdict() != Incomplete || c.Reasons[0] != OperationUnseen {
		t.Errorf("%s %v, want an operation that was not seen", c.Verdict(), c.Reasons)
	}
}

// A device whose engine has ended may be another one by now, with the same number: it has no operations to be missed.
func TestDeviceUsedAgain(t *testing.T) {
	ended := false
	s := newStream(t, Options{Followed: func(process uint32) bool { return process == engine && !ended }})
	at := func(offset uint64) func(*Event) { return func(e *Event) { e.Offset = offset } }
	s.operation(viewRequest, 130, 190, nil)
	s.operation(viewFrontend, 120, 195, nil)
	s.request(0xa, 100, 110, 200, nil)
	s.wait(1, waitSync, 100, 200, 200, byRequest(0xa, 200))
	s.statement(1, 100, 200)
	s.chain()
	of := func(start uint64) *Chain {
		t.Helper()
		s.request(0xa, start, start+10, start+100, at(5<<20))
		s.wait(1, waitSync, start, start+100, start+100, byRequest(0xa, start+100))
		s.statement(1, start, start+100)
		chains := s.Advance((start+100)*us + settling)
		if len(chains) != 1 {
			t.Fatalf("%d chains", len(chains))
		}
		return chains[0]
	}
	if c := of(2000 * second); c.Verdict() != Incomplete {
		t.Errorf("%s while the engine is there", c.Verdict())
	}
	ended = true
	s.Advance(2100 * second * us)
	if c := of(2200 * second); c.Verdict() != Exact {
		t.Errorf("%s %v after the engine's end", c.Verdict(), c.Reasons)
	}
}

// Reads and writes of other places, at other times, or of another kind are not taken for a request's.
func TestOthersOperations(t *testing.T) {
	c := written(t, func(s *stream) {
		s.operation(viewFrontend, 120, 390, func(e *Event) { e.Subtype = opRead })
		s.operation(viewFrontend, 120, 390, func(e *Event) { e.Offset += 4096 })
		s.operation(viewFrontend, 120, 390, func(e *Event) { e.Size = 4096 })
		s.operation(viewFrontend, 50, 105, nil)
	})
	want(t, c, Exact, nil, map[string]uint64{layers.Queue: 10, layers.Device: 290})
}
