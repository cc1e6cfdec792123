package collector

import (
	"errors"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// only makes a wire that knows processes of one role, as on a node that has no others.
func only(role replica.Role) func(*replicaWire) {
	return func(w *replicaWire) {
		recognise := w.recognise
		w.recognise = func(args []string, hostname func() string) (*replicaProcess, error) {
			p, err := recognise(args, hostname)
			if p == nil || p.Role != role {
				return nil, nil
			}
			return p, err
		}
	}
}

// Two agents, one of which knows the engine and the other one the replicas, as on two nodes: each request to a replica that a
// commit waited for is a step with a number on one, and the trace of that number on the other.
func TestTraceAcrossNodes(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	ownMounts(t)
	v := newTestVolume(t, 2)
	a := startTraced(t, TraceOptions{Sample: 1, Slowest: maxTraceSlowest})
	m := startReplicaWire(t, testWire(v, only(replica.Engine)), v.ProcFS, a.options.Tracing)
	v.Start()
	m.followed(1)
	loop, err := rig.AttachLoop(t, v.Bridge())
	if err != nil {
		t.Fatal(err)
	}
	_, c := tracedServer(t, a, loop)
	// From now on: what the file system's making wrote is no commit's.
	b := startTraced(t, TraceOptions{Sample: 1, Slowest: maxTraceSlowest})
	n := startReplicaWire(t, testWire(v, only(replica.Replica)), v.ProcFS, b.options.Tracing)
	n.followed(2)
	served := func() map[string]*trace.Chain {
		b.tracer.mu.Lock()
		defer b.tracer.mu.Unlock()
		all := map[string]*trace.Chain{}
		for _, c := range b.tracer.slowestServed {
			all[c.ID()] = c
		}
		return all
	}
	// Both know the replicas' addresses once a look at their connections has come by.
	testkit.Eventually(t, time.Minute, func() error {
		begin := monotonic()
		run(t, c, commitOf8KB)
		for _, c := range a.settled(tracedName, begin) {
			for _, s := range spans(c.Root) {
				if s.Elsewhere != "" && len(served()) > 0 {
					return nil
				}
			}
		}
		return errors.New("no replica has a name yet")
	})

	const commits = 50
	begin := monotonic()
	for range commits {
		run(t, c, commitOf8KB)
	}
	chains := a.settled(tracedName, begin)
	wantExact(t, chains, commits*9/10)
	b.settled(tracedName, begin)
	there := served()
	steps, found := 0, 0
	for _, c := range chains {
		for _, s := range spans(c.Root) {
			if s.Layer == trace.Replica {
				t.Errorf("the engine's agent knows of %q", s.What)
			}
			if s.Layer != trace.Network {
				continue
			}
			steps++
			request := there[s.Elsewhere]
			if request == nil {
				t.Errorf("the replicas' agent has no trace %q of %q", s.Elsewhere, s.What)
				continue
			}
			found++
			// A step may be cut at its beginning.
			if "request to "+request.ServerName != s.What || request.Root.Start > s.End || request.Root.Layer != trace.Replica {
				t.Errorf("%q until %d is %q from %d on", s.What, s.End, request.ServerName, request.Root.Start)
			}
		}
	}
	t.Logf("%d requests to replicas in %d commits; the replicas' agent has %d of them, of %d in all", steps, len(chains), found, len(there))
	if steps < commits {
		t.Errorf("%d requests to replicas in %d commits", steps, commits)
	}
	if len(b.of(tracedName, begin)) == 0 {
		t.Error("the second agent follows no statement")
	}
	for name, m := range map[string]*replicaMeter{"engine": m, "replicas": n} {
		t.Run(name, func(t *testing.T) { m.read().clean(t) })
	}
}
