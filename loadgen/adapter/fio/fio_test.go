package fio

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

func newTool(t *testing.T, config Config) (*Tool, *adapter.Supervisor, *metrics.Load, *metrics.Load) {
	t.Helper()
	set := metrics.NewSet(prometheus.NewRegistry())
	load := set.Load(metrics.Labels{Tool: "fio", Profile: "io"}, metrics.Options{})
	syncs := set.Load(metrics.Labels{Tool: "fio", Profile: "sync"}, metrics.Options{})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	s := &adapter.Supervisor{Load: load, Log: log, Rate: config.Rate}
	tool, err := New(config, load, syncs, log, s.Up)
	if err != nil {
		t.Fatal(err)
	}
	return tool, s, load, syncs
}

// live-3.33.txt are the four reports of a run of 3 s by fio 3.33, as they came.
func TestTranscript(t *testing.T) {
	text, err := os.ReadFile("testdata/live-3.33.txt")
	if err != nil {
		t.Fatal(err)
	}
	tool, _, load, syncs := newTool(t, Config{Directory: t.TempDir()})
	r := &run{Tool: tool}
	reports := 0
	split := splitter{report: func(b []byte) { reports++; r.report(b) }, other: func(l string) { t.Errorf("stray line %q", l) }}
	adapter.Lines(strings.NewReader(string(text)), split.line)
	got, synced := load.Tally(), syncs.Tally()
	if reports != 4 || got.Completed != 390 || got.Service.Count() != 390 || synced.Completed != 96 || got.ParseErrors != 0 {
		t.Errorf("%d reports, %d I/Os, %d syncs, %d parse errors; fio's last report has 195 reads, 195 writes and 96 syncs",
			reports, got.Completed, synced.Completed, got.ParseErrors)
	}
	if r.last.total != 390 {
		t.Errorf("fio's own total is %d", r.last.total)
	}
	// fio 3.33's own means of that run: read 0.27 ms, write 0.24 ms, give or take its bins.
	if mean := got.Service.Mean(); mean < 0.00005 || mean > 0.005 {
		t.Errorf("mean of %v s", mean)
	}
}

// A report that is cut off or garbled is left out and counted; the next makes up for it.
func TestBrokenReports(t *testing.T) {
	tool, _, load, _ := newTool(t, Config{Directory: t.TempDir()})
	r := &run{Tool: tool}
	var other []string
	split := splitter{report: r.report, other: func(l string) { other = append(other, l) }}
	report := func(n int) string {
		return fmt.Sprintf("{\n \"jobs\" : [ { \"write\" : { \"total_ios\" : %d, \"lat_ns\" : { \"bins\" : { \"1000\" : %d } } } } ]\n}\n", n, n)
	}
	adapter.Lines(strings.NewReader(report(2)+"fio: something\n"+"{\n \"jobs\" : [\n"+report(5)+"{\n \"jobs\" : broken\n}\n"+"{\n}\n"+report(3)+report(9)), split.line)
	if got := load.Tally(); got.Completed != 9 || got.ParseErrors != 3 || len(other) != 1 {
		t.Errorf("%d completed, %d parse errors, other lines %q; want 9, 3 (garbled, empty, going back), 1", got.Completed, got.ParseErrors, other)
	}
}

// A report without latencies is not one of nothing; the error names what is wanted.
func TestReportWithoutLatencies(t *testing.T) {
	_, err := ParseReport([]byte(`{"jobs": [{"write": {"total_ios": 815105, "lat_ns": {"N": 0}}}]}`))
	if err == nil || !strings.Contains(err.Error(), "815105 I/Os and the latency of none: want lat_ns.bins") {
		t.Errorf("%v", err)
	}
}

// A call of fio's that failed, as on a full disk, may not fail another time; one that is not possible there always
// does. The error of either has fio's words.
func TestComplaints(t *testing.T) {
	for line, c := range map[string]struct {
		failed  bool
		storage uint64
	}{
		"fio: pid=4, err=28/file:filesetup.c:238, func=write, error=No space left on device":                {true, 1},
		"fio: pid=4, err=5/file:io_u.c:1787, func=io_u error, error=Input/output error":                     {true, 1},
		"fio: pid=4, err=11/file:ioengines.c:1, func=io_queue_init, error=Resource temporarily unavailable": {true, 0},
		"fio: pid=4, err=22/file:filesetup.c:800, func=open(/x), error=Invalid argument":                    {false, 0},
		"fio: engine nosuch not loadable": {false, 0},
	} {
		tool, _, load, _ := newTool(t, Config{Directory: t.TempDir()})
		r := &run{Tool: tool}
		r.note(line)
		if r.failed != c.failed || load.Tally().Errors[metrics.Storage] != c.storage || r.lastWords != strings.TrimPrefix(line, "fio: ") {
			t.Errorf("%q: failed %v, errors %v, words %q", line, r.failed, load.Tally().Errors, r.lastWords)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(`{"jobs":[{"read":{"total_ios":3,"lat_ns":{"N":3,"bins":{"1000":2,"2000":1}}},"sync":{"lat_ns":{"bins":{}}}}]}`))
	f.Add([]byte(`{"jobs":[{"read":{"total_ios":3,"lat_ns":{"bins":{"-5":2}}}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := ParseReport(text)
		if err != nil {
			return
		}
		c, err := r.counts()
		if err != nil {
			t.Fatal("a report that was accepted has no counts:", err)
		}
		for d := range c.io {
			if d < 0 {
				t.Errorf("latency %v", d)
			}
		}
	})
}

// What was counted equals what fio reports at its end, syncs apart; a killed fio is started again
// and no count goes back.
func TestLive(t *testing.T) {
	tool, supervisor, load, syncs := newTool(t, Config{Path: testkit.Tool(t, "fio"), Directory: testdb.Folder(t), RW: "randwrite", BlockSize: "8k",
		Size: "8m", Engine: "libaio", IODepth: 2, Jobs: 2, Fdatasync: 1, Rate: 200})
	stop := testload.Start(t, func(ctx context.Context) { tool.Once(ctx) })
	testload.Measure(t, load, 300)
	stop()
	got := load.Tally()
	t.Logf("counted %d requests, fio %d", got.Completed, tool.Total())
	if got.Completed != tool.Total() || got.Lost != 0 || got.ParseErrors != 0 {
		t.Errorf("counted %d, lost %d, parse errors %d; fio reports %d", got.Completed, got.Lost, got.ParseErrors, tool.Total())
	}
	// One sync after each write, but for those under way at the end.
	if n := syncs.Tally().Completed; n > got.Completed || n+8 < got.Completed {
		t.Errorf("%d syncs of %d writes", n, got.Completed)
	}

	stop = testload.Start(t, func(ctx context.Context) { supervisor.Run(ctx, tool.Once) })
	testload.Await(t, load, got.Completed+200)
	before := load.Tally().Completed
	if err := syscall.Kill(tool.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testload.Until(t, load, "a restart", func(m metrics.Tally) bool { return m.Restarts[metrics.Killed] == 1 })
	if now := load.Tally().Completed; now < before {
		t.Errorf("the counter went back from %d to %d", before, now)
	}
	testload.Await(t, load, before+200)
	stop()
	if err := tool.Cleanup(); err != nil {
		t.Error(err)
	}
	if left, err := filepath.Glob(tool.config.Directory + "/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// Files that Make has written hold data in every block, which a file that fio only reserved room for does not; and they
// are the ones that the load writes to.
func TestMake(t *testing.T) {
	tool, _, load, _ := newTool(t, Config{Path: testkit.Tool(t, "fio"), Directory: testdb.Folder(t), RW: "randwrite", BlockSize: "4k",
		Size: "1m", Engine: "libaio", IODepth: 1, Jobs: 2, Rate: 100})
	if err := tool.Make(t.Context()); err != nil {
		t.Fatal(err)
	}
	made := map[string]os.FileInfo{}
	files := func() []string {
		names, err := filepath.Glob(tool.config.Directory + "/*")
		if err != nil || len(names) != 2 {
			t.Fatalf("files %v, %v; want one for each of two jobs", names, err)
		}
		return names
	}
	for _, name := range files() {
		text, err := os.ReadFile(name)
		if err != nil || len(text) != 1<<20 {
			t.Fatalf("%s: %d bytes, %v", name, len(text), err)
		}
		for block := range slices.Chunk(text, 4096) {
			if !slices.ContainsFunc(block, func(b byte) bool { return b != 0 }) {
				t.Fatalf("%s has a block without data", name)
			}
		}
		if made[name], err = os.Stat(name); err != nil {
			t.Fatal(err)
		}
	}
	stop := testload.Start(t, func(ctx context.Context) { tool.Once(ctx) })
	testload.Await(t, load, 20)
	stop()
	for _, name := range files() {
		if now, err := os.Stat(name); err != nil || !os.SameFile(now, made[name]) {
			t.Errorf("%s is another file now: %v", name, err)
		}
	}
	broken, _, _, _ := newTool(t, Config{Path: testkit.Tool(t, "fio"), Directory: testdb.Folder(t), Size: "much", Jobs: 1})
	if err := broken.Make(t.Context()); err == nil || !strings.Contains(err.Error(), "size") {
		t.Errorf("a size that is none: %v; want fio's own words", err)
	}
}

// What fio complains of is in the error, and is no end of the process.
// A folder's name may have what fio or a pattern takes for something else: the files are there alone, and go again.
func TestFolderOfAnyName(t *testing.T) {
	above := testdb.Folder(t)
	t.Chdir(above) // where fio makes what it takes for relative
	for _, name := range []string{"a:b", "ip-10.0.0.7:3260-lun-[1]", "a", "b"} {
		if err := os.Mkdir(filepath.Join(above, name), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a:b", "ip-10.0.0.7:3260-lun-[1]"} {
		folder := filepath.Join(above, name)
		tool, _, load, _ := newTool(t, Config{Path: testkit.Tool(t, "fio"), Directory: folder, RW: "randwrite", BlockSize: "4k",
			Size: "1m", Engine: "libaio", IODepth: 1, Jobs: 1, Rate: 100})
		if err := tool.Make(t.Context()); err != nil {
			t.Fatal(err)
		}
		stop := testload.Start(t, func(ctx context.Context) { tool.Once(ctx) })
		testload.Await(t, load, 5)
		stop()
		if in, err := os.ReadDir(folder); err != nil || len(in) != 1 {
			t.Errorf("%s holds %v, %v; want one file", name, in, err)
		}
		if err := tool.Cleanup(); err != nil {
			t.Error(err)
		}
		if err := filepath.WalkDir(above, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				t.Errorf("%s: there is %s", name, path)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

func TestFailureIsReported(t *testing.T) {
	tool, _, _, _ := newTool(t, Config{Path: testkit.Tool(t, "fio"), Directory: testdb.Folder(t), RW: "sideways", BlockSize: "8k",
		Size: "1m", Engine: "libaio", IODepth: 1, Jobs: 1})
	ended := tool.Once(t.Context())
	if ended.Reason != metrics.Exited || !ended.Refused || ended.Err == nil || !strings.Contains(ended.Err.Error(), "sideways") {
		t.Errorf("%q, %v; want fio's own words", ended.Reason, ended.Err)
	}
	if _, err := New(Config{Directory: "/nowhere"}, nil, nil, nil, nil); err == nil || !strings.Contains(err.Error(), "/nowhere") {
		t.Errorf("a directory that is not there: %v", err)
	}
}
