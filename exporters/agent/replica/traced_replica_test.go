package replica

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

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

// tracedVolume starts a volume with both its replicas followed, and a server whose log is on it, on a loop device.
func tracedVolume(t *testing.T, v *testVolume) (a *tracertest.Traced, m *replicaMeter, c *pgx.Conn, loop string) {
	t.Helper()
	a = tracertest.Start(t, tracer.Options{Sample: 1, Slowest: tracer.MaxSlowest})
	m = startReplicaWire(t, testWire(v), v.ProcFS, a.Options.Tracing)
	v.Start()
	m.Followed(3)
	loop, err := rig.AttachLoop(t, v.Bridge())
	if err != nil {
		t.Fatal(err)
	}
	_, c = tracertest.Server(t, a, loop)
	return a, m, c, loop
}

// Every commit on a Longhorn volume is followed through the engine to each replica and its disk, and a delay of one
// replica's disk is that replica's disk's in all of them.
func TestTraceReplicas(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	collectortest.OwnMounts(t)
	const slow = 1
	v := newTestVolume(t, 2)
	r := v.Replicas[slow]
	r.Process.Kill()
	r.Dir = filepath.Join(r.Dir, "mounted")
	disk := mountSlow(t, filepath.Dir(r.Dir), r.Dir)
	v.StartReplica(r)

	a, m, c, loop := tracedVolume(t, v)
	device := tracertest.DeviceNumber(t, loop)

	const commits = 100
	commit := func() []*trace.Chain {
		begin := collector.Monotonic()
		for range commits {
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		chains := a.Settled(tracertest.Name, begin)
		tracertest.WantExact(t, chains, commits*9/10)
		return chains
	}
	complete := 0
	for _, c := range commit() {
		found := map[string]int{}
		for _, s := range tracertest.Spans(c.Root) {
			found[s.Layer]++
		}
		// Each part of a write has one operation of the engine, and that two copies, each with a disk's request or more.
		writes, parts := len(tracertest.WritesOf(c, device)), found[layers.Engine]
		if found[layers.Network] > 2*parts || found[layers.Replica] > found[layers.Network] {
			t.Errorf("%d writes, with below them %v", writes, found)
		}
		// What is over before the commit, which had no CPU, could sleep for it, it has not waited for.
		if writes > 0 && parts >= writes && found[layers.Network] == 2*parts && found[layers.Replica] == 2*parts && found[layers.Disk] >= 4*parts {
			complete++
		}
	}
	if complete < commits/2 {
		t.Errorf("%d of %d commits lead to writes of the log's device and through the engine to both replicas' disks", complete, commits)
	} else {
		t.Logf("%d of %d commits lead to both replicas' disks", complete, commits)
	}

	const delay = 20 * time.Millisecond
	disk.Writes.Set(delay)
	defer disk.Writes.Set(0)
	// Each copy is named by its address, as in metrics.
	missing := map[string]bool{}
	for _, r := range v.Replicas {
		missing["replica "+r.Address], missing["request to replica "+r.Address] = true, true
	}
	named := maps.Clone(missing)
	var shares []float64
	for _, c := range commit() {
		for _, s := range tracertest.Spans(c.Root) {
			if delete(missing, s.What); (s.Layer == layers.Network || s.Layer == layers.Replica) && !named[s.What] {
				t.Errorf("%q, want one of %v", s.What, named)
			}
		}
		shares = append(shares, float64(c.Root.Shares()[layers.Disk])/1e9)
		if c.Duration() < uint64(delay) {
			t.Errorf("a commit took %d ns, one replica's disk takes %v", c.Duration(), delay)
		}
	}
	if len(missing) > 0 {
		t.Errorf("no commit waited for %v", missing)
	}
	// A commit that is kept from the CPU meanwhile waits for the rest only.
	if len(shares) == 0 || collectortest.Median(shares) < delay.Seconds()/2 {
		t.Errorf("%v s for the replicas' disks, of which one takes %v", shares, delay)
	}
	m.Read().Clean(t)
	if served := a.Tracer.Served(); len(served) != 0 {
		t.Errorf("%d requests of engines elsewhere, such as %+v", len(served), served[0])
	}
}

// A replica that hangs until the engine gives it up is what the commit waited for, not the engine, though no answer
// reports it.
func TestTraceReplicaHangs(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	collectortest.OwnMounts(t)
	v := newTestVolume(t, 2, "--engine-replica-timeout", "8")
	a, _, c, _ := tracedVolume(t, v)
	begin := collector.Monotonic()
	for range 10 {
		querytest.Run(t, c, tracertest.CommitOf8KB)
	}
	tracertest.WantExact(t, a.Settled(tracertest.Name, begin), 9)

	hung := v.Replicas[1]
	halt(t, hung.Process)
	begin = collector.Monotonic()
	querytest.Run(t, c, tracertest.CommitOf8KB)
	var found *trace.Chain
	for _, c := range a.Settled(tracertest.Name, begin) {
		if c.Duration() > uint64(4*time.Second) {
			found = c
		}
	}
	if found == nil {
		t.Fatal("no commit waited for the replica")
	}
	shares := found.Root.Shares()
	t.Logf("%.3f s, %s %v: %v", float64(found.Duration())/1e9, found.Verdict(), found.Reasons, shares)
	if !slices.Contains(found.Reasons, trace.CopiesUnseen) {
		t.Errorf("%s %v, want %s", found.Verdict(), found.Reasons, trace.CopiesUnseen)
	}
	named := false
	for _, s := range tracertest.Spans(found.Root) {
		named = named || s.What == "request to replica "+hung.Address+", without an answer"
	}
	// What came after the latest sample of the request is the engine's.
	if !named || shares[layers.Network] < found.Duration()/2 {
		t.Errorf("the hung replica is named: %v; of %d ns the requests to replicas have %d", named, found.Duration(), shares[layers.Network])
	}
}
