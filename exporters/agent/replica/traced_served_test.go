package replica

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
	"github.com/plumbline/plumbline/exporters/agent/tracer/tracertest"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// only makes a wire that knows processes of one role, as on a node that has no others.
func only(role bpf.Role) func(*replicaWire) {
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
	engine, replicas *tracertest.Traced
	meters           map[string]*replicaMeter
	client           *pgx.Conn
}

// startTwoNodes starts them; traces go to an OTLP endpoint, unless that is empty.
func startTwoNodes(t testing.TB, endpoint string) *twoNodes {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	collectortest.OwnMounts(t)
	v := newTestVolume(t, 2)
	o := tracer.Options{Sample: 1, Slowest: tracer.MaxSlowest, OTLP: endpoint}
	n := &twoNodes{t: t, engine: tracertest.Start(t, o), meters: map[string]*replicaMeter{}}
	n.meters["engine"] = startReplicaWire(t, testWire(v, only(bpf.Engine)), v.ProcFS, n.engine.Options.Tracing)
	v.Start()
	n.meters["engine"].Followed(1)
	loop, err := rig.AttachLoop(t, v.Bridge())
	if err != nil {
		t.Fatal(err)
	}
	_, n.client = tracertest.Server(t, n.engine, loop)
	// From now on: what the file system's making wrote is no commit's.
	n.replicas = tracertest.StartAlone(t, o)
	n.meters["replicas"] = startReplicaWire(t, testWire(v, only(bpf.Replica)), v.ProcFS, n.replicas.Options.Tracing)
	n.meters["replicas"].Followed(2)
	// Both know the replicas' addresses once a sample of their connections was taken.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for _, c := range n.commit(1) {
			for _, s := range tracertest.Spans(c.Root) {
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
	begin := collector.Monotonic()
	for range times {
		querytest.Run(n.t, n.client, tracertest.CommitOf8KB)
	}
	n.replicas.Settled(tracertest.Name, begin)
	return n.engine.Settled(tracertest.Name, begin)
}

// served are the slowest requests to replicas, by their numbers as traces.
func (n *twoNodes) served() map[string]*trace.Chain {
	all := map[string]*trace.Chain{}
	for _, c := range n.replicas.Tracer.Served() {
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
	tracertest.WantExact(t, chains, commits*9/10)
	there := n.served()
	steps, found := 0, 0
	for _, c := range chains {
		for _, s := range tracertest.Spans(c.Root) {
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
	n.meters["engine"].Read().Clean(t)
}
