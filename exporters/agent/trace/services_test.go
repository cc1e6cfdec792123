package trace

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// byPeer names each replica by its number, at both ends alike.
func byPeer(_, peer uint32) string { return fmt.Sprintf("10.42.1.%d:10000", peer) }

// twoCopies are an engine's write and its two copies: to replica 1, and to replica 2 on another node.
func twoCopies(s *stream) {
	s.operation(viewRequest, 140, 350, func(e *Event) { e.Peer, e.LocalPort, e.RemotePort = 1, 40001, 10001 })
	s.operation(viewRequest, 140, 300, func(e *Event) { e.Peer, e.LocalPort, e.RemotePort = 2, 40002, 10001 })
	s.operation(viewFrontend, 130, 380, nil)
}

// statementOfWrite is a statement that waited for that write.
func statementOfWrite(s *stream) *Chain {
	s.request(0xa, 100, 110, 400, nil)
	s.wait(1, waitSync, 100, 400, 400, byRequest(0xa, 400))
	s.statement(1, 100, 400)
	return s.chain()
}

// elsewhere counts the steps that are marked as on another node.
func elsewhere(c *Chain) (n int) {
	for _, step := range c.Report(time.Unix(1000, 0)).Steps {
		if step.ReplicaTraceID != "" {
			n++
		}
	}
	return n
}

// A replica that is on this node, and whose operation is missing, is not on another one.
func TestServiceUnseen(t *testing.T) {
	for name, c := range map[string]struct {
		seen  func(*stream)
		exact bool
	}{
		"it has never been seen here": {func(*stream) {}, true},
		"it has served something else": {func(s *stream) {
			s.operation(viewService, 10, 20, func(e *Event) { e.Owner, e.Peer, e.LocalPort, e.RemotePort = engine+1, 1, 10001, 40001 })
		}, false},
		"another one has": {func(s *stream) {
			s.operation(viewService, 10, 20, func(e *Event) { e.Owner, e.Peer, e.LocalPort, e.RemotePort = engine+1, 3, 10001, 40001 })
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{Replica: byPeer})
			c.seen(s)
			twoCopies(s)
			got := statementOfWrite(s)
			if c.exact {
				if got.Verdict() != Exact || elsewhere(got) != 2 {
					t.Errorf("%s %v, %d steps on other nodes", got.Verdict(), got.Reasons, elsewhere(got))
				}
				return
			}
			if !slices.Equal(got.Reasons, []Reason{ServiceUnseen}) || elsewhere(got) != 1 {
				t.Errorf("%s %v, %d steps on other nodes; want %s and 1", got.Verdict(), got.Reasons, elsewhere(got), ServiceUnseen)
			}
		})
	}
}

// Operations of any view that had to make room are not taken for ones that never were.
func TestOperationsForgotten(t *testing.T) {
	for name, view := range map[string]uint8{"requests": viewRequest, "services": viewService, "frontends": viewFrontend} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{Replica: byPeer})
			// Of another volume, while the statement was under way.
			for range maxOps {
				s.operation(view, 150, 160, func(e *Event) { e.Owner, e.Offset = engine+50, 99<<20 })
			}
			twoCopies(s)
			s.operation(view, 150, 360, func(e *Event) { e.Owner, e.Offset = engine+50, 99<<20 })
			got := statementOfWrite(s)
			if got.Verdict() != Incomplete || !slices.Contains(got.Reasons, Forgotten) {
				t.Errorf("%s %v, want forgotten events", got.Verdict(), got.Reasons)
			}
			if view == viewService && elsewhere(got) != 0 {
				t.Errorf("%d steps are reported as on other nodes", elsewhere(got))
			}
		})
	}
}

// Replicas of this node are remembered within bounds, and not for ever.
func TestServicesBounds(t *testing.T) {
	s := newStream(t, Options{})
	for i := range uint32(2 * maxServices) {
		s.operation(viewService, uint64(i), uint64(i)+1, func(e *Event) { e.Owner = i })
	}
	if len(s.services) != maxServices || s.services[serviceKey{2*maxServices - 1, 0}] == nil {
		t.Errorf("%d replicas are remembered", len(s.services))
	}
	if s.Advance(uint64(1e15)); len(s.services) != 0 {
		t.Errorf("%d replicas are kept for ever", len(s.services))
	}
}
