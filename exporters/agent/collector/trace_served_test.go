package collector

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/rules/layers"
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

// twoNodes are two agents, as on two nodes, and a server whose log is on a volume: one agent knows the volume's engine,
// the other its two replicas.
type twoNodes struct {
	t                testing.TB
	engine, replicas *traced
	meters           map[string]*replicaMeter
	client           *pgx.Conn
}

// startTwoNodes starts them; traces go to an OTLP endpoint, unless that is empty.
func startTwoNodes(t testing.TB, endpoint string) *twoNodes {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	ownMounts(t)
	v := newTestVolume(t, 2)
	o := TraceOptions{Sample: 1, Slowest: maxTraceSlowest, OTLP: endpoint}
	n := &twoNodes{t: t, engine: startTraced(t, o), meters: map[string]*replicaMeter{}}
	n.meters["engine"] = startReplicaWire(t, testWire(v, only(replica.Engine)), v.ProcFS, n.engine.options.Tracing)
	v.Start()
	n.meters["engine"].followed(1)
	loop, err := rig.AttachLoop(t, v.Bridge())
	if err != nil {
		t.Fatal(err)
	}
	_, n.client = tracedServer(t, n.engine, loop)
	// From now on: what the file system's making wrote is no commit's.
	n.replicas = startTracer(t, o)
	n.meters["replicas"] = startReplicaWire(t, testWire(v, only(replica.Replica)), v.ProcFS, n.replicas.options.Tracing)
	n.meters["replicas"].followed(2)
	// Both know the replicas' addresses once a look at their connections has come by.
	testkit.Eventually(t, testkit.Patience, func() error {
		for _, c := range n.commit(1) {
			for _, s := range spans(c.Root) {
				if s.Elsewhere != "" && len(n.served()) > 0 {
					return nil
				}
			}
		}
		return errors.New("no replica has a name yet")
	})
	return n
}

// commit commits so often, and returns the chains of that.
func (n *twoNodes) commit(times int) []*trace.Chain {
	n.t.Helper()
	begin := monotonic()
	for range times {
		run(n.t, n.client, commitOf8KB)
	}
	n.replicas.settled(tracedName, begin)
	return n.engine.settled(tracedName, begin)
}

// served are the slowest requests to replicas, by their numbers as traces.
func (n *twoNodes) served() map[string]*trace.Chain {
	n.replicas.tracer.mu.Lock()
	defer n.replicas.tracer.mu.Unlock()
	all := map[string]*trace.Chain{}
	for _, c := range n.replicas.tracer.slowestServed {
		all[c.ID()] = c
	}
	return all
}

// Each request to a replica that a commit waited for is a step with a number on one node, and the trace of that number
// on the other.
func TestTraceAcrossNodes(t *testing.T) {
	n := startTwoNodes(t, "")
	const commits = 50
	chains := n.commit(commits)
	wantExact(t, chains, commits*9/10)
	there := n.served()
	steps, found := 0, 0
	for _, c := range chains {
		for _, s := range spans(c.Root) {
			if s.Layer == layers.Replica {
				t.Errorf("the engine's agent knows of %q", s.What)
			}
			if s.Layer != layers.Network {
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
			if "request to "+request.ServerName != s.What || request.Root.Start > s.End || request.Root.Layer != layers.Replica {
				t.Errorf("%q until %d is %q from %d on", s.What, s.End, request.ServerName, request.Root.Start)
			}
		}
	}
	t.Logf("%d requests to replicas in %d commits; the replicas' agent has %d of them, of %d in all", steps, len(chains), found, len(there))
	if steps < commits {
		t.Errorf("%d requests to replicas in %d commits", steps, commits)
	}
	// The replicas' agent came to connections that were at work.
	n.meters["engine"].read().clean(t)
}
