package tracer_test

import (
	"cmp"
	"slices"
	"testing"
	"time"

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

// A statement's bytes wake the server after the client has begun to send them, and before the statement begins; how
// long before is in the metric, once for each statement.
func TestTraceWakeup(t *testing.T) {
	collectortest.OwnMounts(t)
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 256<<20)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	a := tracertest.Start(t, tracer.Options{Sample: 1, Slowest: 1})
	_, c := tracertest.Server(t, a, disk.Device)

	backend := int(c.PgConn().PID())

	const commits = 20
	// So long that every commit waits for it, and is followed.
	disk.Syncs.Set(50 * time.Millisecond)
	// The latest statement is counted after its client has the answer.
	a.Settled(tracertest.Name, 0)
	before, series := querytest.Wakeups(t, a.Query, tracertest.Name)
	if series == 0 {
		t.Error("there are no wake-ups of the server")
	}
	begin := collector.Monotonic()
	var sent []uint64
	for range commits {
		querytest.UntilAsleep(t, backend)
		sent = append(sent, collector.Monotonic())
		querytest.Run(t, c, tracertest.CommitOf8KB)
	}
	disk.Syncs.Set(0)
	chains := a.Settled(tracertest.Name, begin)
	after, _ := querytest.Wakeups(t, a.Query, tracertest.Name)
	if len(chains) != commits {
		t.Fatalf("%d statements were followed, %d made", len(chains), commits)
	}
	slices.SortFunc(chains, func(a, b *trace.Chain) int { return cmp.Compare(a.Root.Start, b.Root.Start) })
	var woken int
	var sum float64
	for i, c := range chains {
		if c.Woken < sent[i] || c.Woken > c.Root.Start {
			t.Errorf("commit %d: sent at %d, woken %d ns later, begun %d ns later", i, sent[i], int64(c.Woken-sent[i]), int64(c.Root.Start-sent[i]))
		}
		if c.Woken < c.Root.Start {
			woken++
		}
		sum += float64(c.Root.Start-c.Woken) / 1e9
	}
	t.Logf("%d of %d statements woke the server; %.1f us before they began, on average", woken, commits, 1e6*sum/float64(max(woken, 1)))
	// A process that is about to sleep looks as if it did.
	if woken < commits/2 {
		t.Errorf("%d of %d statements woke the server", woken, commits)
	}
	if diff := after - before - sum; diff < -1e-6 || diff > 1e-6 {
		t.Errorf("the metric has %.6f s of wake-ups, the statements have %.6f s", after-before, sum)
	}
}

// takeCPU lets a process run on one CPU alone. What it returns takes that CPU from it for 5 ms, from its return on.
func takeCPU(t *testing.T, pid int) (take func()) {
	t.Helper()
	wanted, taken := make(chan struct{}), make(chan struct{})
	collectortest.Rival(t, pid, func(stop <-chan struct{}) {
		for {
			select {
			case <-stop:
				return
			case <-wanted:
			}
			taken <- struct{}{}
			collectortest.BusyFor(5 * time.Millisecond)
		}
	})
	return func() {
		wanted <- struct{}{}
		<-taken
	}
}

// A server that is woken and has to wait for a CPU before it reads the statement has waited in the run queue, not
// worked.
func TestTraceFirstWaitForCPU(t *testing.T) {
	collectortest.OwnMounts(t)
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 256<<20)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	a := tracertest.Start(t, tracer.Options{Sample: 1, Slowest: 1})
	_, c := tracertest.Server(t, a, disk.Device)
	backend := int(c.PgConn().PID())
	disk.Syncs.Set(50 * time.Millisecond)
	defer disk.Syncs.Set(0)
	take := takeCPU(t, backend)
	// On a busy machine the client loses its CPU, too, and sends its statement when the server's is free again: then
	// there is nothing to wait for. So statements are made until enough of them have waited.
	const round, rounds, enough = 10, 30, 5
	a.Settled(tracertest.Name, 0)
	made, waited, longest := 0, 0, uint64(0)
	for made < round*rounds && waited < enough {
		begin := collector.Monotonic()
		for range round {
			querytest.UntilAsleep(t, backend)
			take()
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		made += round
		chains := a.Settled(tracertest.Name, begin)
		if len(chains) != round {
			t.Fatalf("%d statements were followed, %d made", len(chains), round)
		}
		for _, c := range chains {
			if len(c.Root.Below) == 0 {
				continue
			}
			first := c.Root.Below[0]
			if first.Layer != layers.Runqueue || first.Start != c.Root.Start {
				continue
			}
			took := first.End - first.Start
			if longest = max(longest, took); took > uint64(500*time.Microsecond) {
				waited++
			}
			if queued := c.Root.Shares()[layers.Runqueue]; queued < took {
				t.Errorf("%d ns in the run queue, of that %d to begin with", queued, took)
			}
		}
	}
	t.Logf("%d of %d statements waited for a CPU to begin with, up to %d us", waited, made, longest/1000)
	if waited < enough {
		t.Errorf("%d of %d statements waited for a CPU to begin with", waited, made)
	}
}
