package query

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The time of each kind of statement lands in the phase that it is spent in. What counts are
// shares of one statement's own time, so that a busy machine does no harm; the wait for a
// CPU, which a busy machine lengthens, is left out of them.
func TestQueryPhases(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{
		"cluster_name": "phased", "shared_buffers": "1MB", "work_mem": "256MB", "jit": "off",
		"max_parallel_workers_per_gather": "0", "autovacuum": "off",
	}, nil)
	querytest.WaitForServer(t, q, "phased")
	ctx := context.Background()
	c := pg.Connect(t)

	t.Run("computing is cpu", func(t *testing.T) {
		got := querytest.During(t, q, "phased", 1, func() {
			querytest.Run(t, c, "select count(md5(i::text)) from generate_series(1, 300000) i")
		})
		querytest.WantCounts(t, got, map[string]uint64{"select": 1})
		wantShare(t, got, "select", "cpu", 0.95)
		querytest.WantSum(t, got)
	})
	t.Run("sleeping is wait", func(t *testing.T) {
		got := querytest.During(t, q, "phased", 1, func() { querytest.Run(t, c, "select pg_sleep(0.3)") })
		wantShare(t, got, "select", "wait", 0.95)
		wantAtLeast(t, got, "select", "wait", 300*time.Millisecond)
		querytest.WantSum(t, got)
	})
	t.Run("parallel workers are no statements", func(t *testing.T) {
		querytest.Run(t, c, "create table wide as select i, repeat('x', 100) from generate_series(1, 100000) i")
		other := pg.Connect(t)
		got := querytest.During(t, q, "phased", 6, func() {
			for _, s := range []string{"set max_parallel_workers_per_gather = 2", "set parallel_setup_cost = 0",
				"set parallel_tuple_cost = 0", "set min_parallel_table_scan_size = 0", "set parallel_leader_participation = off"} {
				querytest.Run(t, other, s)
			}
			querytest.Run(t, other, "select count(md5(repeat)) from wide")
		})
		querytest.WantCounts(t, got, map[string]uint64{"other": 5, "select": 1})
		// The leader does nothing but wait for the two.
		wantShare(t, got, "select", "wait", 0.5)
		querytest.WantSum(t, got)
	})
	t.Run("a row lock is wait", func(t *testing.T) {
		querytest.Run(t, c, "create table locked (id int primary key, n int)")
		querytest.Run(t, c, "insert into locked values (1, 0)")
		const held = 200 * time.Millisecond
		other := pg.Connect(t)
		got := querytest.During(t, q, "phased", 5, func() {
			querytest.Run(t, other, "begin")
			querytest.Run(t, other, "delete from locked")
			done := make(chan error, 1)
			go func() {
				_, err := c.Exec(ctx, "update locked set n = 1")
				done <- err
			}()
			watcher := pg.Connect(t)
			var seen time.Time
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				var n int
				if err := watcher.QueryRow(ctx, "select count(*) from pg_locks where not granted").Scan(&n); err != nil {
					return err
				}
				switch {
				case n == 0:
					return fmt.Errorf("nobody waits for the lock yet")
				case seen.IsZero():
					seen = time.Now()
				}
				if waited := time.Since(seen); waited < held {
					return fmt.Errorf("the update waits for the lock since %v", waited)
				}
				return nil
			})
			querytest.Run(t, other, "rollback")
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		// The commit's flush takes as long as the disk is busy.
		wantShare(t, got, "update", "wait", 0.9, "sync")
		wantAtLeast(t, got, "update", "wait", held)
		querytest.WantSum(t, got)
	})
	t.Run("a cold read is read and a miss", func(t *testing.T) {
		querytest.Run(t, c, "create table big as select i, repeat('x', 500) from generate_series(1, 40000) i")
		querytest.Run(t, c, "vacuum big")
		querytest.Run(t, c, "checkpoint")
		var file string
		var pages float64
		if err := c.QueryRow(ctx, "select pg_relation_filepath('big'), pg_relation_size('big') / 8192").Scan(&file, &pages); err != nil {
			t.Fatal(err)
		}
		if err := rig.DropCache(filepath.Join(pg.Data, file)); err != nil {
			t.Fatal(err)
		}
		cold := querytest.During(t, q, "phased", 1, func() { querytest.Run(t, c, "select count(*) from big") })
		// Few of the calls wait: the kernel reads ahead.
		if cold.Reads["miss"] < 1 || cold.Phases["select"]["read"] <= 0 {
			t.Errorf("cold: reads %v, phases %v", cold.Reads, cold.Phases["select"])
		}
		querytest.WantSum(t, cold)
		warm := querytest.During(t, q, "phased", 1, func() { querytest.Run(t, c, "select count(*) from big") })
		if warm.Reads["miss"] != 0 || warm.Phases["select"]["read"] != 0 {
			t.Errorf("warm: reads %v, phases %v", warm.Reads, warm.Phases["select"])
		}
		// 1 MB of shared buffers cannot hold it: nearly every page is a read call.
		if warm.Reads["hit"] < 0.9*pages || warm.Reads["hit"] > 1.1*pages {
			t.Errorf("warm: %v read calls hit the page cache, the table has %v pages", warm.Reads["hit"], pages)
		}
		querytest.WantSum(t, warm)
	})
	t.Run("a client that does not read is client", func(t *testing.T) {
		const unread = 200 * time.Millisecond
		got := querytest.During(t, q, "phased", 1, func() {
			rows, err := c.Query(ctx, "select repeat('x', 1000) from generate_series(1, 50000)")
			if err != nil {
				t.Fatal(err)
			}
			rows.Next()
			// The server has filled the socket's buffers when it is asleep for want of room; from
			// then on it sleeps, as nobody reads.
			watcher := pg.Connect(t)
			var full time.Time
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				var n int
				if err := watcher.QueryRow(ctx, "select count(*) from pg_stat_activity where wait_event = 'ClientWrite'").Scan(&n); err != nil {
					return err
				}
				switch {
				case n == 0:
					return fmt.Errorf("the server does not wait for its client yet")
				case full.IsZero():
					full = time.Now()
				}
				if waited := time.Since(full); waited < unread {
					return fmt.Errorf("the server waits for its client since %v", waited)
				}
				return nil
			})
			rows.Close()
			if rows.Err() != nil {
				t.Fatal(rows.Err())
			}
		})
		wantShare(t, got, "select", "client", 0.5)
		wantAtLeast(t, got, "select", "client", unread)
		querytest.WantSum(t, got)
	})
}

// What processes wake each other with is no read of a file.
func TestQueryWakeUpsAreNoReads(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "woken", "autovacuum": "off", "jit": "off"}, nil)
	querytest.WaitForServer(t, q, "woken")
	c := pg.Connect(t)
	querytest.Run(t, c, "create table wide as select i, repeat('x', 100) from generate_series(1, 20000) i")
	for _, s := range []string{"max_parallel_workers_per_gather = 2", "parallel_setup_cost = 0", "parallel_tuple_cost = 0",
		"min_parallel_table_scan_size = 0", "parallel_leader_participation = off"} {
		querytest.Run(t, c, "set "+s)
	}
	const rows = "select count(md5(repeat)) from wide"
	querytest.Run(t, c, rows) // from here on all is in the server's own memory
	const times = 50
	got := querytest.During(t, q, "woken", times, func() {
		for range times {
			querytest.Run(t, c, rows)
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": times})
	if got.Reads["hit"] != 0 || got.Reads["miss"] != 0 {
		t.Errorf("reads of files: %v", got.Reads)
	}
	// The next one may be there before the last one's wake-ups are all read, and reads them.
	w := dial(t, pg)
	w.send([]byte(message('Q', "set max_parallel_workers_per_gather = 2; set parallel_setup_cost = 0; set parallel_tuple_cost = 0; "+
		"set min_parallel_table_scan_size = 0; set parallel_leader_participation = off\x00")))
	w.ready(1)
	pair := []byte(executeOf(rows) + message('S', "") + executeOf("select pg_sleep(0.001)") + message('S', ""))
	w.send(pair) // a new session has to read some files itself
	w.ready(2)
	got = querytest.During(t, q, "woken", 2*times, func() {
		for range times {
			w.send(pair)
			w.ready(2)
		}
	})
	if got.Reads["hit"] != 0 || got.Reads["miss"] != 0 {
		t.Errorf("reads of files by pipelined statements: %v", got.Reads)
	}
}

// wantShare fails unless a phase has at least this share of a command's time, not counting the wait for a CPU, the
// time on one (which caches and neighbours stretch), nor the phases that are named besides.
func wantShare(t testing.TB, got querytest.Seen, command, phase string, share float64, besides ...string) {
	t.Helper()
	p := got.Phases[command]
	time := got.Sums[command] - p["runqueue"]
	if phase != "cpu" {
		time -= p["cpu"]
	}
	for _, b := range besides {
		time -= p[b]
	}
	if p[phase] < share*time {
		t.Errorf("%s: %s is %.6f s of %.6f s: %v", command, phase, p[phase], time, p)
	}
}

// wantAtLeast fails unless a phase, with what a busy machine takes from it, lasted this long: after
// its wake-up a task waits for a CPU (runqueue), and before it sleeps it may wait for one, too.
func wantAtLeast(t testing.TB, got querytest.Seen, command, phase string, least time.Duration) {
	t.Helper()
	p := got.Phases[command]
	if sum := p[phase] + p["runqueue"] + p["cpu"]; sum < least.Seconds() {
		t.Errorf("%s: %s with runqueue and cpu is %.6f s, want at least %v: %v", command, phase, sum, least, p)
	}
}
