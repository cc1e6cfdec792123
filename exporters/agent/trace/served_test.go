package trace

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/rules/layers"
)

const enginePort, replicaPort = 40000, 10001

// byAddress names every replica the same.
func byAddress(_, _ uint32) string { return "10.42.1.7:10000" }

func fromEngine(e *Event) { e.LocalPort, e.RemotePort = enginePort, replicaPort }

func atReplica(e *Event) {
	e.Owner, e.Tgid, e.LocalPort, e.RemotePort = engine+1, 500, replicaPort, enginePort
}

// Two agents, of the engine's node and of the replica's, give one request the same number.
func TestServedElsewhere(t *testing.T) {
	here := newStream(t, Options{Slowest: 3, Keep: 1e18, Replica: byAddress})
	here.operation(viewRequest, 140, 350, fromEngine)
	here.operation(viewFrontend, 130, 380, nil)
	here.request(0xa, 100, 110, 400, nil)
	here.wait(1, waitSync, 100, 400, 400, byRequest(0xa, 400))
	here.statement(1, 100, 400)
	statement := here.chain().Report(time.Unix(1000, 0))
	var named []string
	for _, step := range statement.Steps {
		if step.ReplicaTraceID != "" {
			named = append(named, step.ReplicaTraceID)
		}
	}
	if len(here.SlowestServed()) != 0 || len(named) != 1 {
		t.Fatalf("on the engine's node %d requests are served, and the steps name %q", len(here.SlowestServed()), named)
	}

	// Another clock, and a clock's difference.
	there := newStream(t, Options{Slowest: 3, Keep: 1e18, Replica: byAddress})
	there.request(0xb, 9010, 9015, 9100, func(e *Event) { e.Owner, e.Tgid, e.Offset, e.CallOffset = other, 500, 77<<20, 1<<20 })
	there.operation(viewService, 9000, 9150, atReplica)
	c := there.chain()
	want(t, c, Exact, nil, map[string]uint64{layers.Replica: 10 + 50, layers.Disk: 5 + 85})
	request := c.Report(time.Unix(2000, 0))
	if request.TraceID != named[0] || !request.Request || request.Server != "replica 10.42.1.7:10000" || request.Command != "write" {
		t.Errorf("%+v, want trace %s", request, named[0])
	}
	if c.Sampled || len(there.Slowest()) != 0 || !slices.Equal(there.SlowestServed(), []*Chain{c}) {
		t.Errorf("sampled %v, %d slow statements, %d requests", c.Sampled, len(there.Slowest()), len(there.SlowestServed()))
	}
	var out bytes.Buffer
	if err := WriteHTML(&out, []Statement{statement}, []Statement{request}); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "trace "+named[0]); n != 2 {
		t.Errorf("the page has the request's number %d times, want that of the step and that of the request:\n%s", n, out.String())
	}
}

// Any difference in the request, or in its sender, is another number.
func TestRequestID(t *testing.T) {
	o := Event{Request: 5, Subtype: opWrite, Offset: 1 << 20, Size: 4096}
	all := map[string]bool{}
	add := func(name string, port uint16, change func(*Event)) {
		e := o
		if change != nil {
			change(&e)
		}
		all[requestID(name, port, &e)] = true
	}
	add("a", 1, nil)
	add("a", 1, nil)
	add("b", 1, nil)
	add("a", 2, nil)
	add("a", 1, func(e *Event) { e.Request++ })
	add("a", 1, func(e *Event) { e.Subtype = opRead })
	add("a", 1, func(e *Event) { e.Offset++ })
	add("a", 1, func(e *Event) { e.Size++ })
	if len(all) != 7 {
		t.Errorf("%d numbers of 7 different requests", len(all))
	}
}

// A request of an engine on this node is a step of its statement, and no trace of its own; nor is one without a name.
func TestServedHere(t *testing.T) {
	for name, c := range map[string]struct {
		replica func(process, peer uint32) string
		events  func(*stream)
	}{
		"its engine is here": {byAddress, func(s *stream) {
			s.operation(viewService, 200, 345, atReplica)
			s.operation(viewRequest, 140, 350, fromEngine)
		}},
		"its engine is here, and has not answered": {byAddress, func(s *stream) {
			s.operation(viewRequest, 10, 20, fromEngine)
			s.operation(viewService, 200, 345, atReplica)
		}},
		"events were lost": {byAddress, func(s *stream) {
			s.operation(viewService, 200, 345, atReplica)
			s.Lost(1, 300*us, 400*us)
		}},
		"nobody knows the replica": {nil, func(s *stream) { s.operation(viewService, 200, 345, atReplica) }},
		"a unix socket": {byAddress, func(s *stream) {
			s.operation(viewService, 200, 345, func(e *Event) { e.Owner = engine + 1 })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStream(t, Options{Slowest: 3, Keep: 1e18, Replica: c.replica})
			c.events(s)
			if chains := s.Advance(uint64(1e12)); len(chains) != 0 {
				t.Errorf("%d chains", len(chains))
			}
		})
	}
}

// Of many requests the slowest are kept, at any rate.
func TestServedBounds(t *testing.T) {
	s := newStream(t, Options{Slowest: 5, Keep: 1e18, Replica: byAddress})
	const n = 10000
	for i := range uint64(n) {
		s.operation(viewService, 1000, 1001+i*7919%n, atReplica)
	}
	if n := len(s.candidates.kept); n > minCandidates {
		t.Errorf("%d candidates", n)
	}
	if chains := s.Advance(uint64(1e12)); len(chains) < 5 {
		t.Fatalf("%d chains", len(chains))
	}
	var got []uint64
	for _, c := range s.SlowestServed() {
		got = append(got, c.Duration()/us)
	}
	if !slices.Equal(got, []uint64{n, n - 1, n - 2, n - 3, n - 4}) {
		t.Errorf("the slowest took %v us", got)
	}
	for i := range uint64(2 * maxEngines) {
		s.operation(viewRequest, 1, 2, func(e *Event) { e.LocalPort, e.RemotePort = uint16(1+i), 10001 })
	}
	if len(s.engines) != maxEngines {
		t.Errorf("%d connections of engines are remembered", len(s.engines))
	}
	s.options.Keep = 1
	if s.Advance(uint64(2e12)); len(s.SlowestServed()) != 0 {
		t.Errorf("%d are kept for ever", len(s.SlowestServed()))
	}
	if len(s.engines) != 0 {
		t.Errorf("%d connections of engines are kept for ever", len(s.engines))
	}
}

// Where events were lost, a replica's part may be among them, on this node.
func TestElsewhereUnknown(t *testing.T) {
	s := newStream(t, Options{Replica: byAddress})
	s.operation(viewRequest, 140, 350, fromEngine)
	s.operation(viewFrontend, 130, 380, nil)
	s.request(0xa, 100, 110, 400, nil)
	s.wait(1, waitSync, 100, 400, 400, byRequest(0xa, 400))
	s.statement(1, 100, 400)
	s.Lost(1, 300*us, 350*us)
	for _, step := range s.chain().Report(time.Unix(1000, 0)).Steps {
		if step.ReplicaTraceID != "" {
			t.Errorf("%q is reported as another node's", step.What)
		}
	}
}
