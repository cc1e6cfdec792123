package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// traced are the collectors trace and query at work together.
type traced struct {
	t       testing.TB
	options Options
	tracer  *tracer
	query   *query

	mu     sync.Mutex
	chains []*trace.Chain
}

// startTraced follows every statement that waits.
func startTraced(t testing.TB, o TraceOptions) *traced {
	t.Helper()
	a := startTracer(t, o)
	a.query = a.start(NewQuery).(*query)
	return a
}

// startTracer is startTraced on a node without a server.
func startTracer(t testing.TB, o TraceOptions) *traced {
	t.Helper()
	testkit.NeedBPF(t)
	a := &traced{t: t, options: Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: "/proc", SysFS: "/sys", Boundary: testBoundary(), Trace: o, Tracing: &Tracing{}, Query: QueryOptions{Top: 10}}}
	a.tracer = a.start(NewTrace).(*tracer)
	return a
}

// start makes a collector and starts it.
func (a *traced) start(make Factory) Collector {
	a.t.Helper()
	c, err := make(a.options)
	if err != nil {
		a.t.Fatal(err)
	}
	if tr, ok := c.(*tracer); ok {
		tr.sink = a.take
	}
	if err := c.Start(context.Background()); err != nil {
		a.t.Fatal(err)
	}
	a.t.Cleanup(func() {
		if err := c.Close(); err != nil {
			a.t.Error(err)
		}
	})
	return c
}

func (a *traced) take(c *trace.Chain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chains = append(a.chains, c)
}

// of returns the chains of a server's statements of one command, without those of the first statements, of `after`.
func (a *traced) of(label string, after uint64) (all []*trace.Chain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, c := range a.chains {
		if c.ServerName == label && c.Root.Start >= after {
			all = append(all, c)
		}
	}
	return all
}

// settled waits until all statements that have ended are joined, and returns a server's chains since then.
func (a *traced) settled(label string, after uint64) []*trace.Chain {
	a.t.Helper()
	end := monotonic()
	testkit.Eventually(a.t, testkit.Patience, func() error {
		a.tracer.mu.Lock()
		defer a.tracer.mu.Unlock()
		if a.tracer.joined < end+uint64(time.Second) {
			return errors.New("statements wait for their events")
		}
		return nil
	})
	return a.of(label, after)
}

// spans returns all spans of a chain.
func spans(s *trace.Span) []*trace.Span {
	all := []*trace.Span{s}
	for _, below := range s.Below {
		all = append(all, spans(below)...)
	}
	return all
}

// wantExact fails unless nearly all chains are exact: a task of the kernel that a commit waits for is not known when it
// is met first, and on a busy machine an interrupt may fall into another one.
func wantExact(t testing.TB, chains []*trace.Chain, least int) {
	t.Helper()
	found := map[trace.Verdict]int{}
	reasons := map[trace.Reason]int{}
	for _, c := range chains {
		found[c.Verdict()]++
		for _, r := range c.Reasons {
			reasons[r]++
		}
		var sum uint64
		for _, ns := range c.Root.Shares() {
			sum += ns
		}
		if sum != c.Duration() {
			t.Errorf("the layers of a statement add up to %d of %d ns", sum, c.Duration())
		}
	}
	t.Logf("%d chains: %v %v", len(chains), found, reasons)
	if len(chains) < least {
		t.Errorf("%d chains, want at least %d", len(chains), least)
	}
	allowed := 2 + len(chains)/100
	if len(testPlatform(t).Missing("block_io_done")) > 0 {
		// Before Linux 6.2 the kernel refuses a task's storage now and then (bpf/README.md): 2 of 20 wake-ups were
		// unseen once.
		allowed += len(chains) / 10
	}
	// Another run of the same test writes to the same places of its own device.
	allowed += min(reasons[trace.TwoRequests], len(chains)/4)
	if len(chains)-found[trace.Exact] > allowed {
		t.Errorf("%d of %d chains are exact: %v", found[trace.Exact], len(chains), reasons)
	}
}

// diskWrite is a write of a device that a chain waited for.
type diskWrite struct {
	offset, size int64
	start        uint64
}

// writesOf returns the writes with data that a chain waited for, of a device.
func writesOf(c *trace.Chain, device string) map[diskWrite]bool {
	found := map[diskWrite]bool{}
	for _, s := range spans(c.Root) {
		var w diskWrite
		var on string
		if n, _ := fmt.Sscanf(s.What, "write of %d bytes at %d of %s", &w.size, &w.offset, &on); n == 3 && on == device && s.Layer == layers.Queue {
			w.start = s.End // a span may be cut at its beginning
			found[w] = true
		}
	}
	return found
}

// deviceNumber is a block device's number as chains have it.
func deviceNumber(t testing.TB, path string) string {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	n := info.Sys().(*syscall.Stat_t).Rdev
	return fmt.Sprintf("%d:%d", unix.Major(n), unix.Minor(n))
}

// tracedServer starts a PostgreSQL server whose log is on a file system of its own, made on a device, and warms it up:
// from then on all tasks that its commits wait for are known.
func tracedServer(t testing.TB, a *traced, device string) (*servertest.Postgres, *pgx.Conn) {
	t.Helper()
	return tracedServerOn(t, a, "on", func(mount string) error { return rig.MountExt4(t, device, mount, "-J", "size=4") })
}

// tracedServerOn is tracedServer with another file system. If filled is off, each new file of the log is empty.
func tracedServerOn(t testing.TB, a *traced, filled string, mountAt func(string) error) (*servertest.Postgres, *pgx.Conn) {
	t.Helper()
	mount := filepath.Join(t.TempDir(), "log")
	if err := os.Mkdir(mount, 0o755); err != nil {
		t.Fatal(err)
	}
	openUp(t, mount)
	if err := mountAt(mount); err != nil {
		t.Fatal(err)
	}
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": tracedName, "autovacuum": "off", "max_wal_size": "64MB", "min_wal_size": "32MB",
		"wal_init_zero": filled, "wal_recycle": filled, "checkpoint_timeout": "1h", "wal_writer_delay": "10s", "compute_query_id": "on"}, func(data string) { logOn(t, data, mount) })
	waitForServer(t, a.query, tracedName)
	c := pg.Connect(t)
	run(t, c, "create table t (s text)")
	run(t, c, "alter table t alter s set storage external")
	for range 10 {
		run(t, c, commitOf8KB)
	}
	return pg, c
}

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

// tracedName is the server's label: other tests of this kind may run beside.
var tracedName = fmt.Sprintf("traced-%d", os.Getpid())

// commitOf8KB writes as much to the log.
const commitOf8KB = "insert into t select string_agg(md5(random()::text), '') from generate_series(1, 240)"

// openUp lets everybody into a folder and those above it, up to the file system's.
func openUp(t testing.TB, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// Every commit leads to the requests that it waited for, also when another session has flushed the log for it; a delay
// of the requests in one range is in exactly the chains that have such a request, and one of the disk's flushes in the
// flushes.
func TestTraceDelays(t *testing.T) {
	ownMounts(t)
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 256<<20)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	a := startTraced(t, TraceOptions{Sample: 1, Slowest: maxTraceSlowest})
	pg, c := tracedServer(t, a, disk.Device)
	device := deviceNumber(t, disk.Device)

	t.Run("exact", func(t *testing.T) {
		const commits = 200
		begin := monotonic()
		for range commits {
			run(t, c, commitOf8KB)
		}
		chains := a.settled(tracedName, begin)
		// A commit whose request is over before it gets to sleep did not wait.
		wantExact(t, chains, commits*9/10)
		wantQuery(t, c, commitOf8KB, chains)
		wantShown(t, a, uint64(len(chains)))
	})
	t.Run("one range", func(t *testing.T) {
		const delay = 200 * time.Millisecond
		// Where the log goes on: behind what the latest commit wrote of it itself, without the journal.
		var end int64
		for _, c := range a.of(tracedName, 0) {
			for _, sleep := range c.Root.Below {
				if len(sleep.Below) > 0 && !slices.ContainsFunc(sleep.Below, func(s *trace.Span) bool { return s.Layer == layers.FileSystem }) {
					for w := range writesOf(&trace.Chain{Root: sleep}, device) {
						end = w.offset + w.size
					}
				}
			}
		}
		from, to := end+64<<10, end+128<<10
		disk.Only(from, to)
		disk.Writes.Take()
		disk.Writes.Set(delay)
		begin := monotonic()
		for range 30 {
			run(t, c, commitOf8KB)
		}
		disk.Writes.Set(0)
		held := disk.Writes.Take()
		chains := a.settled(tracedName, begin)
		wantExact(t, chains, 27)
		delayed := map[diskWrite]bool{}
		// A statement that is kept from the CPU while its request is under way waits for the rest of it only, so that
		// the device's share may be less on a busy machine. The statement is not over before, in any case.
		var slow, others []float64
		for _, c := range chains {
			hit := false
			for w := range writesOf(c, device) {
				if w.offset < to && w.offset+w.size > from {
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
		t.Logf("%d writes held back; %d chains with them, %d without, device's median there %.6f s", held.Times, len(slow), len(others), median(others))
		if held.Times == 0 || len(delayed) != held.Times {
			t.Errorf("chains have %d writes in the range, the disk held back %d", len(delayed), held.Times)
		}
		if len(slow) == 0 || median(slow) < delay.Seconds()/2 || median(others) >= delay.Seconds()/2 {
			t.Errorf("a delay of %v in one range: chains with such writes have %v s of the device, those without %v s", delay, slow, others)
		}
	})
	t.Run("flushes", func(t *testing.T) {
		const delay, commits = 50 * time.Millisecond, 20
		disk.Syncs.Set(delay)
		begin := monotonic()
		for range commits {
			run(t, c, commitOf8KB)
		}
		disk.Syncs.Set(0)
		chains := a.settled(tracedName, begin)
		wantExact(t, chains, commits)
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
		if len(flushed) == 0 || median(flushed) < delay.Seconds()/2 {
			t.Errorf("commits waited %v s for flushes, each takes %v", flushed, delay)
		}
	})
	t.Run("group commit", func(t *testing.T) {
		disk.Syncs.Set(5 * time.Millisecond)
		begin := monotonic()
		pg.Bench(t, "insert into t values ('');\n", "-c", "4", "-j", "2", "-t", "50")
		disk.Syncs.Set(0)
		chains := a.settled(tracedName, begin)
		wantExact(t, chains, 200*9/10)
		followers := 0
		for _, c := range chains {
			for _, s := range spans(c.Root) {
				if s.Layer == layers.Wait && len(writesOf(&trace.Chain{Root: s}, device))+len(flushesOf(s)) > 0 {
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
		run(t, c, "alter system set wal_sync_method = 'fsync'")
		run(t, c, "select pg_reload_conf()")
		testkit.Eventually(t, testkit.Patience, func() error {
			var method string
			if err := c.QueryRow(context.Background(), "show wal_sync_method").Scan(&method); err != nil || method != "fsync" {
				return fmt.Errorf("wal_sync_method is %s: %w", method, err)
			}
			return nil
		})
		run(t, c, commitOf8KB) // the journal's task is met
		begin := monotonic()
		for range 50 {
			run(t, c, commitOf8KB)
		}
		chains := a.settled(tracedName, begin)
		wantExact(t, chains, 45)
		journals := 0
		for _, c := range chains {
			for _, s := range spans(c.Root) {
				if strings.HasPrefix(s.What, "task ") && len(writesOf(&trace.Chain{Root: s}, device)) > 0 {
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
	if n := a.tracer.counts.Lost; n != 0 {
		t.Errorf("%d events lost", n)
	}
}

// wantShown fails unless metrics and pages have at least so many of the server's statements.
func wantShown(t testing.TB, a *traced, statements uint64) {
	t.Helper()
	observed, exact := uint64(0), 0.0
	for _, f := range gather(t, a.tracer) {
		for _, m := range f.Metric {
			l := labels(m)
			if l["server"] != tracedName {
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
	for _, page := range a.tracer.Pages() {
		answer := httptest.NewRecorder()
		page.Handler.ServeHTTP(answer, httptest.NewRequest("GET", page.Path, nil))
		// Nobody serves requests of engines elsewhere here.
		named := page.Path != "/slowest-served.json"
		if text := answer.Body.String(); answer.Code != 200 || strings.Contains(text, tracedName) != named || strings.Contains(text, "string_agg") {
			t.Errorf("%s: status %d, names the server: %v", page.Path, answer.Code, strings.Contains(text, tracedName))
		}
	}
}

// flushesOf are the flushes of devices below a span.
func flushesOf(s *trace.Span) (all []*trace.Span) {
	for _, below := range spans(s) {
		if below.What == "the device's flush" {
			all = append(all, below)
		}
	}
	return all
}

// What cannot be is refused before anything is loaded.
func TestTraceOptions(t *testing.T) {
	for name, o := range map[string]Options{
		"a sample of less than nothing": {Tracing: &Tracing{}, Trace: TraceOptions{Sample: -1}},
		"too many slow statements":      {Tracing: &Tracing{}, Trace: TraceOptions{Slowest: maxTraceSlowest + 1}},
		"too large a ring":              {Tracing: &Tracing{}, Trace: TraceOptions{RingBytes: maxTraceRing + 1}},
		"no address":                    {Tracing: &Tracing{}, Trace: TraceOptions{OTLP: "tempo:4318"}},
		"nothing that reports events":   {},
	} {
		o.Log = slog.New(slog.DiscardHandler)
		if _, err := NewTrace(o); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	c, err := NewTrace(Options{Log: slog.New(slog.DiscardHandler), Tracing: &Tracing{}, Trace: TraceOptions{RingBytes: 5000}})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.(*tracer).options.Trace; got.RingBytes != 8192 || got.Sample != defaultTraceSample || got.Slowest != defaultTraceSlowest {
		t.Errorf("options %+v", got)
	}
}

// Without the collector nothing of it is loaded: a program at wake-ups is attached only for servers that need it, and the others are
// smaller.
func TestTracingOff(t *testing.T) {
	a := startTraced(t, TraceOptions{})
	with := a.query.programs
	without := startQuery(t).programs
	if without.wakes != nil || with.wakes == nil {
		t.Error("the program at wake-ups is attached without tracing, or not with it")
	}
	if n := without.objects.TraceEvents.MaxEntries(); n > uint32(os.Getpagesize()) {
		t.Errorf("a ring of %d bytes without tracing", n)
	}
	size := func(p *queryPrograms) int {
		info, err := p.programs["task_switched"].Info()
		if err != nil {
			t.Fatal(err)
		}
		n, err := info.TranslatedSize()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	t.Logf("task_switched has %d bytes without tracing, %d with it", size(without), size(with))
	if size(without) >= size(with) {
		t.Error("task_switched is as large without tracing as with it")
	}
}
