package query

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// cpuTime is a task's run time as the kernel reports it, and how long it has waited for a CPU.
func cpuTime(t testing.TB, pid int) (ran, delayed time.Duration) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "%d %d", &ran, &delayed); err != nil {
		t.Fatal(err)
	}
	return ran, delayed
}

// A kernel may hide a switch from every program. A statement that was not seen to come back to a CPU has its time there
// all the same, and the waits reported before.
func TestQuerySwitchUnseen(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "unseen", "jit": "off", "max_parallel_workers_per_gather": "0"}, nil)
	querytest.WaitForServer(t, q, "unseen")
	c, other := pg.Connect(t), pg.Connect(t)
	pid := int(c.PgConn().PID())
	querytest.Run(t, c, "select pg_sleep(0.01)")
	querytest.Run(t, other, "select pg_advisory_lock(1)")

	attached := slices.Sorted(slices.Values(attachedPrograms(q.programs.kernel, nil)))
	switches := slices.Index(attached, "task_switched")
	before := querytest.AtRest(t, q, "unseen")
	ranBefore, _ := cpuTime(t, pid)
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(context.Background(),
			"select count(*) from generate_series(1, 10000) a, generate_series(1, 5000) b, generate_series(1, 5000) c where (select pg_advisory_lock(1)) is not null")
		done <- err
	}()
	wantGauge(t, q, "unseen", "plumbline_query_blocked", is(1))
	waits := time.Now()
	_, delayedBefore := cpuTime(t, pid)
	if err := q.programs.links[switches].Close(); err != nil {
		t.Fatal(err)
	}
	waited := time.Since(waits)
	if err := other.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	wantGauge(t, q, "unseen", "plumbline_query_in_flight cpu", is(1))
	link, err := q.programs.groups["task_switched"].Attach()
	if err != nil {
		t.Fatal(err)
	}
	q.programs.links[switches] = link
	// Until now other switches may have come, too; only the last one shows. Where it was one off the CPU, the wait for that
	// counts as time on it.
	hidden, _ := cpuTime(t, pid)
	hidden -= ranBefore
	// It would go on for hours.
	if err := c.PgConn().CancelRequest(context.Background()); err != nil {
		t.Fatal(err)
	}
	const canceled = "57014"
	ended := <-done
	if err, ok := errors.AsType[*pgconn.PgError](ended); !ok || err.Code != canceled {
		t.Fatal(ended)
	}
	got := querytest.Since(t, q, "unseen", before, 1)
	ran, delayed := cpuTime(t, pid)
	ran, delayed = ran-ranBefore, delayed-delayedBefore
	querytest.WantCounts(t, got, map[string]uint64{"select": 1})
	querytest.WantSum(t, got)
	wantAtLeast(t, got, "select", "wait", waited)
	if cpu := time.Duration(got.Phases["select"]["cpu"] * 1e9); cpu > ran+ran/50+delayed || cpu < ran-ran/50-hidden {
		t.Errorf("%v of cpu; the kernel has %v, of which %v before the programs saw switches again, beside %v that it waited for a CPU since they saw none; of %v",
			cpu, ran, hidden, delayed, got.Phases["select"])
	}
}

// A server is preempted anywhere, also within our programs. A reader at that moment must not get more of any phase than
// it will have had: what was reported once stays reported, and the phases would never add up again.
func TestQueryCollectedWhilePreempted(t *testing.T) {
	r := servertest.StartRedis(t, nil, "--enable-debug-command", "yes")
	q := startQuery(t)
	name := defaultName(t, q, r.PID)
	holds, first, second := r.Connect(t, "tcp"), r.Connect(t, "tcp"), r.Connect(t, "tcp")
	// What is read at once is parsed in one program's run, in which the server spends much of its time.
	const commands = 1000
	ping := strings.Repeat(servertest.RESP("PING"), commands)
	turn := func() error {
		for _, send := range []struct {
			to   *servertest.RedisConn
			text string
		}{
			{holds, servertest.RESP("DEBUG", "SLEEP", "0.002")},
			// The server sleeps meanwhile, and then serves both in one turn, whose clock is the first one's.
			{first, servertest.RESP("PING")}, {second, ping},
		} {
			if _, err := send.to.Send(send.text, 0); err != nil {
				return err
			}
		}
		for _, c := range []struct {
			of *servertest.RedisConn
			n  int
		}{{holds, 1}, {first, 1}, {second, commands}} {
			for range c.n {
				if _, err := c.of.Answer(); err != nil {
					return err
				}
			}
		}
		return nil
	}
	interruptCPU(t, r.PID)
	before := querytest.AtRest(t, q, name)
	reads := 0
	for n := range uint64(500) {
		done := make(chan error, 1)
		go func() { done <- turn() }()
		for over := false; !over; reads++ {
			querytest.Collect(t, q, name)
			select {
			case err := <-done:
				if err != nil {
					t.Fatal(err)
				}
				over = true
			default:
			}
		}
		got := querytest.Since(t, q, name, before, (n+1)*(commands+2))
		sum, duration := 0.0, 0.0
		for command := range got.Sums {
			duration += got.Sums[command]
			for _, v := range got.Phases[command] {
				sum += v
			}
		}
		if math.Abs(sum-duration) > 0.0005 {
			t.Fatalf("after %d turns and %d reads: %.6f s, but the phases add up to %.6f s: %v", n+1, reads, duration, sum, got.Phases)
		}
	}
}

// interruptCPU lets a process run on one CPU alone, and takes that from it for 3 ms after each 0.5 ms.
func interruptCPU(t *testing.T, pid int) {
	t.Helper()
	collectortest.Rival(t, pid, func(stop <-chan struct{}) {
		for {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Microsecond):
			}
			collectortest.BusyFor(3 * time.Millisecond)
		}
	})
}
