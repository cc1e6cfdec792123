package tracer_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
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

// wantQuery fails unless all chains have the identifier that the server gives a statement.
func wantQuery(t *testing.T, c *pgx.Conn, statement string, chains []*trace.Chain) {
	t.Helper()
	rows, err := c.Query(context.Background(), "explain (verbose) "+statement)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, chain := range chains {
		if want := fmt.Sprintf("Query Identifier: %d", chain.QueryID); !slices.Contains(lines, want) {
			t.Fatalf("%q is not in %q", want, lines)
		}
	}
}

// Every commit leads to the requests that it waited for, also when another session has flushed the log for it; a delay
// of the requests in one range is in exactly the chains that have such a request, and one of the disk's flushes in the
// flushes.
func TestTraceDelays(t *testing.T) {
	collectortest.OwnMounts(t)
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 256<<20)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	a := tracertest.Start(t, tracer.Options{Sample: 1, Slowest: tracer.MaxSlowest})
	pg, c := tracertest.Server(t, a, disk.Device)
	device := tracertest.DeviceNumber(t, disk.Device)

	t.Run("exact", func(t *testing.T) {
		const commits = 200
		begin := collector.Monotonic()
		for range commits {
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		chains := a.Settled(tracertest.Name, begin)
		// A commit whose request is over before it gets to sleep did not wait.
		tracertest.WantExact(t, chains, commits*9/10)
		wantQuery(t, c, tracertest.CommitOf8KB, chains)
		wantShown(t, a, uint64(len(chains)))
	})
	t.Run("one range", func(t *testing.T) {
		const delay = 200 * time.Millisecond
		// Where the log goes on: behind what the latest commit wrote of it itself, without the journal.
		var end int64
		for _, c := range a.Of(tracertest.Name, 0) {
			for _, sleep := range c.Root.Below {
				if len(sleep.Below) > 0 && !slices.ContainsFunc(sleep.Below, func(s *trace.Span) bool { return s.Layer == layers.FileSystem }) {
					for w := range tracertest.WritesOf(&trace.Chain{Root: sleep}, device) {
						end = w.Offset + w.Size
					}
				}
			}
		}
		from, to := end+64<<10, end+128<<10
		disk.Only(from, to)
		disk.Writes.Take()
		disk.Writes.Set(delay)
		begin := collector.Monotonic()
		for range 30 {
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		disk.Writes.Set(0)
		held := disk.Writes.Take()
		chains := a.Settled(tracertest.Name, begin)
		tracertest.WantExact(t, chains, 27)
		delayed := map[tracertest.DiskWrite]bool{}
		// A statement that is kept from the CPU while its request is under way waits for the rest of it only, so that
		// the device's share may be less on a busy machine. The statement is not over before, in any case.
		var slow, others []float64
		for _, c := range chains {
			hit := false
			for w := range tracertest.WritesOf(c, device) {
				if w.Offset < to && w.Offset+w.Size > from {
					delayed[w], hit = true, true
				}
			}
			share := float64(c.Root.Shares()[layers.Device]) / 1e9
			if hit {
				slow = append(slow, share)
				if c.Duration() < uint64(delay) {
					t.Errorf("a statement with a write in the range took %d ns, the range's delay is %v", c.Duration(), delay)
				}
			} else {
				others = append(others, share)
			}
		}
		t.Logf("%d writes held back; %d chains with them, %d without, device's median there %.6f s", held.Times, len(slow), len(others), collectortest.Median(others))
		if held.Times == 0 || len(delayed) != held.Times {
			t.Errorf("chains have %d writes in the range, the disk held back %d", len(delayed), held.Times)
		}
		if len(slow) == 0 || collectortest.Median(slow) < delay.Seconds()/2 || collectortest.Median(others) >= delay.Seconds()/2 {
			t.Errorf("a delay of %v in one range: chains with such writes have %v s of the device, those without %v s", delay, slow, others)
		}
	})
	t.Run("flushes", func(t *testing.T) {
		const delay, commits = 50 * time.Millisecond, 20
		disk.Syncs.Set(delay)
		begin := collector.Monotonic()
		for range commits {
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		disk.Syncs.Set(0)
		chains := a.Settled(tracertest.Name, begin)
		tracertest.WantExact(t, chains, commits)
		var flushed []float64
		for _, c := range chains {
			var sum uint64
			for _, s := range flushesOf(c.Root) {
				sum += s.End - s.Start
			}
			flushed = append(flushed, float64(sum)/1e9)
			if c.Duration() < uint64(delay) {
				t.Errorf("a commit took %d ns, a flush takes %v", c.Duration(), delay)
			}
		}
		if len(flushed) == 0 || collectortest.Median(flushed) < delay.Seconds()/2 {
			t.Errorf("commits waited %v s for flushes, each takes %v", flushed, delay)
		}
	})
	t.Run("group commit", func(t *testing.T) {
		disk.Syncs.Set(5 * time.Millisecond)
		begin := collector.Monotonic()
		pg.Bench(t, "insert into t values ('');\n", "-c", "4", "-j", "2", "-t", "50")
		disk.Syncs.Set(0)
		chains := a.Settled(tracertest.Name, begin)
		tracertest.WantExact(t, chains, 200*9/10)
		followers := 0
		for _, c := range chains {
			for _, s := range tracertest.Spans(c.Root) {
				if s.Layer == layers.Wait && len(tracertest.WritesOf(&trace.Chain{Root: s}, device))+len(flushesOf(s)) > 0 {
					followers++
					break
				}
			}
		}
		t.Logf("%d of %d commits waited for another session's requests", followers, len(chains))
		if followers == 0 {
			t.Error("no commit is seen to wait for the flush of another one")
		}
	})
	t.Run("journal", func(t *testing.T) {
		// Unlike fdatasync, fsync waits for the file's times to be in the journal.
		querytest.Run(t, c, "alter system set wal_sync_method = 'fsync'")
		querytest.Run(t, c, "select pg_reload_conf()")
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			var method string
			if err := c.QueryRow(context.Background(), "show wal_sync_method").Scan(&method); err != nil || method != "fsync" {
				return fmt.Errorf("wal_sync_method is %s: %w", method, err)
			}
			return nil
		})
		querytest.Run(t, c, tracertest.CommitOf8KB) // the journal's task is met
		begin := collector.Monotonic()
		for range 50 {
			querytest.Run(t, c, tracertest.CommitOf8KB)
		}
		chains := a.Settled(tracertest.Name, begin)
		tracertest.WantExact(t, chains, 45)
		journals := 0
		for _, c := range chains {
			for _, s := range tracertest.Spans(c.Root) {
				if strings.HasPrefix(s.What, "task ") && len(tracertest.WritesOf(&trace.Chain{Root: s}, device)) > 0 {
					journals++
					break
				}
			}
		}
		t.Logf("%d of %d commits waited for the journal's writes", journals, len(chains))
		if journals == 0 {
			t.Error("no commit is seen to wait for the journal's writes")
		}
	})
	if n := a.Tracer.Counts().Lost; n != 0 {
		t.Errorf("%d events lost", n)
	}
}

// wantShown fails unless metrics and pages have at least so many of the server's statements.
func wantShown(t testing.TB, a *tracertest.Traced, statements uint64) {
	t.Helper()
	observed, exact := uint64(0), 0.0
	for _, f := range collectortest.Gather(t, a.Tracer) {
		for _, m := range f.Metric {
			l := collectortest.Labels(m)
			if l["server"] != tracertest.Name {
				continue
			}
			switch {
			case f.GetName() == "plumbline_statement_layer_seconds" && l["layer"] == layers.CPU:
				observed = m.Histogram.GetSampleCount()
				if len(m.Histogram.Exemplars) == 0 || m.Histogram.Exemplars[0].Label[0].GetName() != "trace_id" {
					t.Error("the layers' histogram has no exemplar that names a trace")
				}
			case f.GetName() == "plumbline_trace_statements_total" && l["verdict"] == string(trace.Exact):
				exact = m.Counter.GetValue()
			}
		}
	}
	if 100*observed < 99*statements || float64(observed) != exact {
		t.Errorf("%d statements in the layers' histogram, %v exact ones; want most of %d", observed, exact, statements)
	}
	for _, page := range a.Tracer.Pages() {
		answer := httptest.NewRecorder()
		page.Handler.ServeHTTP(answer, httptest.NewRequest("GET", page.Path, nil))
		// Nobody serves requests of engines elsewhere here.
		named := page.Path != "/slowest-served.json"
		if text := answer.Body.String(); answer.Code != 200 || strings.Contains(text, tracertest.Name) != named || strings.Contains(text, "string_agg") {
			t.Errorf("%s: status %d, names the server: %v", page.Path, answer.Code, strings.Contains(text, tracertest.Name))
		}
	}
}

// flushesOf are the flushes of devices below a span.
func flushesOf(s *trace.Span) (all []*trace.Span) {
	for _, below := range tracertest.Spans(s) {
		if below.What == "the device's flush" {
			all = append(all, below)
		}
	}
	return all
}
