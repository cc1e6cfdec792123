package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// spending is what a collector reports of a server's budget.
type spending struct{ ratio, unsplit, overhead float64 }

func spendingOf(t testing.TB, q *query, server string) (s spending) {
	t.Helper()
	for _, f := range gather(t, q) {
		for _, m := range f.Metric {
			if labels(m)["server"] != server {
				continue
			}
			switch f.GetName() {
			case "plumbline_query_phase_sampling_ratio":
				s.ratio = m.Gauge.GetValue()
			case "plumbline_query_unsplit_total":
				s.unsplit = m.Counter.GetValue()
			case "plumbline_query_overhead_seconds_total":
				s.overhead = m.Counter.GetValue()
			}
		}
	}
	return s
}

// exhaust floods a server, whose budget is next to nothing, until the sample of its statements is as small as it
// becomes.
func exhaust(t testing.TB, q *query, pg *servertest.Postgres, server string) {
	t.Helper()
	testkit.Eventually(t, testkit.Patience, func() error {
		pg.Bench(t, "select 1;\n", "-M", "prepared", "-t", "2000")
		if s := spendingOf(t, q, server); s.ratio != 1.0/(1<<maxPower) {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// Where following costs more than its budget, the time of one statement in 64 is split. All are counted, and the phases
// add up to the durations; what is unsplit is reported, and ends by itself.
func TestQueryBudget(t *testing.T) {
	q := startQueryWith(t, QueryOptions{OverheadBudget: 1e-6})
	q.mu.Lock()
	q.fleet.saving = -100 // whatever the sample saves on this machine
	q.mu.Unlock()
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "thrifty", "fsync": "off"}, nil)
	waitForServer(t, q, "thrifty")
	exec(t, pg, "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(1, 1000) i")
	exhaust(t, q, pg, "thrifty")
	const transaction = "begin;\nupdate t set n = n + 1 where id = :client_id + 1;\nselect n from t where id = 7;\ncommit;\n"
	for _, c := range []struct {
		name, script string
		args         []string
		want         map[string]uint64
	}{
		{"simple", "select n from t where id = 7;\n", []string{"-M", "simple", "-t", "10000"}, map[string]uint64{"select": 10000}},
		{"prepared", "select n from t where id = 7;\n", []string{"-M", "prepared", "-c", "20", "-t", "500"}, map[string]uint64{"select": 10000}},
		{"transactions", transaction, []string{"-M", "prepared", "-c", "8", "-t", "500"},
			map[string]uint64{"begin": 4000, "update": 4000, "select": 4000, "commit": 4000}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := spendingOf(t, q, "thrifty")
			got := during(t, q, "thrifty", sumOf(c.want), func() { pg.Bench(t, c.script, c.args...) })
			wantCounts(t, got, c.want)
			wantSum(t, got)
			after := spendingOf(t, q, "thrifty")
			if unsplit := (after.unsplit - before.unsplit) / float64(got.total()); math.Abs(unsplit-63.0/64) > 0.01 {
				t.Errorf("%.4f of the statements were unsplit, want 63 in 64", unsplit)
			}
			if after.overhead <= before.overhead {
				t.Error("following them cost nothing")
			}
		})
	}
	t.Run("long sleep", func(t *testing.T) { testLongSleep(t, q, pg) })
	t.Run("and back", func(t *testing.T) {
		q.mu.Lock()
		q.options.Query.OverheadBudget = 1
		q.mu.Unlock()
		testkit.Eventually(t, testkit.Patience, func() error {
			q.balance()
			if s := spendingOf(t, q, "thrifty"); s.ratio != 1 {
				return fmt.Errorf("%+v", s)
			}
			return nil
		})
		before := spendingOf(t, q, "thrifty")
		wantSum(t, during(t, q, "thrifty", 1000, func() { pg.Bench(t, "select 1;\n", "-M", "prepared", "-t", "1000") }))
		if s := spendingOf(t, q, "thrifty"); s.unsplit != before.unsplit {
			t.Errorf("%v statements were unsplit", s.unsplit-before.unsplit)
		}
	})
}

// A stalled statement is seen to stall, and what it waited for is exact, though its time is not split.
func testLongSleep(t *testing.T, q *query, pg *servertest.Postgres) {
	exec(t, pg, "create table lines (line text)")
	// The server opens it, and sleeps until somebody opens it for writing.
	pipe := filepath.Join(pg.Dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(pipe, 0o666); err != nil {
		t.Fatal(err)
	}
	const rounds = 8 // hardly one is split
	for range rounds {
		before := look(t, q, "thrifty")
		done := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), testkit.Patience)
		defer cancel()
		go func() { done <- copyFrom(ctx, pg, pipe) }()
		testkit.Eventually(t, testkit.Patience, func() error {
			select {
			case err := <-done:
				t.Fatalf("the statement ended: %v", err)
			default:
			}
			for _, f := range gather(t, q) {
				for _, m := range f.Metric {
					if l := labels(m); f.GetName() == "plumbline_server_longest_wait_seconds" && l["server"] == "thrifty" && l["phase"] == "read" &&
						m.Gauge.GetValue() > 0.2 {
						return nil
					}
				}
			}
			return errors.New("nobody is seen to wait")
		})
		under := look(t, q, "thrifty").minus(before)
		if under.counts["copy"] != 0 {
			t.Fatal("the statement is over")
		}
		shown := look(t, q, "thrifty").phases["copy"]["read"] - before.phases["copy"]["read"]
		if shown < 0.2 {
			t.Errorf("%.3f s of the read under way are shown, which takes 0.2 s and longer", shown)
		}
		w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		got := since(t, q, "thrifty", before, 1)
		wantCounts(t, got, map[string]uint64{"copy": 1})
		// The rest of the statement is as long as the machine lets it wait for a CPU.
		if read, all := got.phases["copy"]["read"], got.sums["copy"]; read < shown || read > all {
			t.Errorf("of %.3f s, %.3f s were a read, of which %.3f s were seen while it went on", all, read, shown)
		}
	}
}

// copyFrom has the server read a file.
func copyFrom(ctx context.Context, pg *servertest.Postgres, path string) error {
	c, err := pgx.Connect(ctx, pg.URL)
	if err != nil {
		return err
	}
	defer c.Close(ctx)
	_, err = c.Exec(ctx, fmt.Sprintf("copy lines from '%s'", path))
	return err
}

func TestQueryBudgetRefused(t *testing.T) {
	for _, b := range []float64{-0.01, 1.01, math.NaN(), math.Inf(1)} {
		if _, err := NewQuery(Options{Log: slog.New(slog.DiscardHandler), Query: QueryOptions{OverheadBudget: b}}); err == nil {
			t.Errorf("a budget of %v is taken", b)
		}
	}
}
