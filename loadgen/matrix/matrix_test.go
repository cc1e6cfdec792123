package matrix

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter/pgbench"
	"github.com/plumbline/plumbline/loadgen/internal/golden"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every step of every matrix has a name of its own and exactly one thing to do, also scaled.
func TestMatricesAreWhole(t *testing.T) {
	for name, m := range Matrices {
		seen := map[string]bool{}
		if m.Source == "" || len(m.Steps) == 0 {
			t.Errorf("%s has no source or no steps", name)
		}
		for _, s := range m.Steps {
			parts := 0
			for _, set := range []bool{s.FIO != nil, s.Init != nil, s.Pgbench != nil, s.Sysbench != nil, s.Scan != nil} {
				if set {
					parts++
				}
			}
			if parts != 1 || seen[s.Name] || (s.Duration == 0) != (s.Init != nil) {
				t.Errorf("%s: step %q: %d parts, duration %v, twice %v", name, s.Name, parts, s.Duration, seen[s.Name])
			}
			seen[s.Name] = true
			if same := s.scaled(1, 1000, 5*time.Second); same.Duration != s.Duration || s.FIO != nil && *same.FIO != *s.FIO || s.Sysbench != nil && *same.Sysbench != *s.Sysbench {
				t.Errorf("%s: step %q is not itself at scale 1", name, s.Name)
			}
		}
	}
	small := Step{Duration: 300 * time.Second, Sysbench: &Sysbench{Threads: 300, Tables: 3, Rows: 20_000_000}}.scaled(0.001, 16, 5*time.Second)
	if small.Duration != 5*time.Second || *small.Sysbench != (Sysbench{16, 3, 20_000}) {
		t.Errorf("scaled to %v, %+v", small.Duration, *small.Sysbench)
	}
}

func latency(mean time.Duration, n int) result.Latency {
	var d stats.Distribution
	d.ObserveN(mean, uint64(n))
	return result.Sum(&d)
}

func row(step, class string, s Step, mean time.Duration, idle, mb float64) Row {
	return Row{Step: step, StorageClass: class, step: s, CPUIdle: Share(idle), MBPerSecond: mb,
		Result: &result.Result{Seconds: 60, Completed: 60000, Rate: 1000, Service: latency(mean, 60000)}}
}

// What makes a result doubtful is noted, and what is sound is not.
func TestJudgeAndTable(t *testing.T) {
	read := Step{FIO: &FIO{RW: "randread", BlockKiB: 4, Depth: 1, Jobs: 1, SizeMiB: 1024}}
	write := Step{FIO: &FIO{RW: "randwrite", BlockKiB: 4, Depth: 1, Jobs: 1, SizeMiB: 1024}}
	short := row("short", "local", write, time.Millisecond, 0.9, 4)
	short.Result.Seconds, short.Result.Completed = 5, 500
	scan := row("scan", "r3", Step{Scan: &Scan{100}}, time.Second, 0.9, 0)
	broken := Row{Step: "broken", StorageClass: "r3", Error: "no such directory"}
	made := Row{Step: "pgbench init", StorageClass: "local", Phases: []pgbench.InitPhase{{Name: "vacuum", Seconds: 0.25}, {Name: "primary keys", Seconds: 1}}}
	wal := row("wal", "r3", write, time.Millisecond, 0.8, 8)
	sync := latency(3*time.Millisecond, 100)
	wal.Sync = &sync
	r := &Report{Matrix: "test", Source: "A test.", Scale: 0.1, MaxClients: 4, Least: 5, Began: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC),
		Environment: Environment{CPU: "a CPU", CPUs: 2, MemoryBytes: 8e9, Kernel: "6.18", Versions: map[string]string{"fio": "fio-3.33"}},
		Targets:     []Target{{StorageClass: "local", Local: true, Replicas: 1}, {StorageClass: "r3", Replicas: 3}},
		Rows: []Row{
			made, row("read", "local", read, time.Millisecond, 0.8, 4), row("read", "r3", read, 500*time.Microsecond, 0.8, 8),
			row("write", "local", write, time.Millisecond, 0.8, 4), row("write", "r3", write, 500*time.Microsecond, 0.8, 8),
			row("sound", "local", write, time.Millisecond, 0.8, 4), row("sound", "r3", write, 2*time.Millisecond, 0.8, 2),
			row("busy", "r3", write, time.Millisecond, 0.1, 4), row("cached", "r3", read, time.Millisecond, 0.8, 400), short, broken, wal, scan,
		}}
	r.judge()
	want := map[string]string{
		"read r3": "cache suspected: faster", "write r3": "not crash-consistent", "busy r3": "generator saturated",
		"cached r3": "cache suspected: 1074 MB", "short local": "run too short",
		"scan r3": "cache suspected: a table of 1300 MB", "read local": "", "write local": "", "sound local": "", "sound r3": "", "wal r3": "",
	}
	for _, row := range r.Rows {
		if row.Result == nil {
			continue
		}
		key := row.Step + " " + row.StorageClass
		got := strings.Join(row.Doubts, "; ")
		if (want[key] == "") != (got == "") || !strings.Contains(got, want[key]) {
			t.Errorf("%s: doubts %q, want %q", key, got, want[key])
		}
	}
	var page strings.Builder
	if err := r.WriteMarkdown(&page); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "testdata/table.md", page.String())
}

func TestReadTargets(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "targets.yaml")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	got, err := ReadTargets(write("targets:\n  - {storageclass: local, local: true, replicas: 1, directory: /srv}\n  - {storageclass: r3, engine: mysql}\n"))
	if err != nil || len(got) != 2 || got[0].Engine != "postgres" || !got[0].Local || got[1].Engine != "mysql" {
		t.Errorf("%+v, %v", got, err)
	}
	for text, want := range map[string]string{
		"":                                      "no targets",
		"targets:\n  - {replicas: 1}":           "target 1 has no storageclass",
		"targets:\n  - {storageclass: a, x: 1}": "field x not found",
		"targets:\n  - {storageclass: a}\n  - {storageclass: a}":                           "twice",
		"targets:\n  - {storageclass: a, engine: oracle}":                                  "oracle",
		"targets:\n  - {storageclass: a, local: true}\n  - {storageclass: b, local: true}": "only one",
	} {
		path := write(text)
		if _, err := ReadTargets(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v, want one with the file's name and %q", text, err, want)
		}
	}
}

// Real steps on a real server and disk; a class that lacks what a step needs costs only its row.
func TestRun(t *testing.T) {
	db := testdb.StartPostgres(t)
	r := Runner{FIO: testkit.Tool(t, "fio"), Pgbench: testkit.Tool(t, "pgbench"), Sysbench: testkit.Tool(t, "sysbench"), ProcFS: "/proc",
		Scale: 0.0001, MaxClients: 2, Least: 1500 * time.Millisecond, Precondition: true, Only: []string{"pgbench init", "pgbench 4 clients", "fio write 8k d32"},
		Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	targets := []Target{{StorageClass: "local", Local: true, Replicas: 1, Engine: "postgres", DSN: db.DSN(), Directory: testdb.Folder(t)},
		{StorageClass: "empty", Engine: "postgres"}}
	report, err := r.Run(t.Context(), "dalibo", targets)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Rows) != 6 {
		t.Fatalf("%d rows, want 3 steps on 2 classes", len(report.Rows))
	}
	prepared := map[string]string{"pgbench init": "checkpoint syncfs", "pgbench 4 clients": "vacuum checkpoint syncfs", "fio write 8k d32": "files written in full checkpoint syncfs"}
	for _, row := range report.Rows {
		if did := strings.Join(row.Prepared, " "); row.StorageClass == "local" && did != prepared[row.Step] {
			t.Errorf("before %s: %q, want %q", row.Step, did, prepared[row.Step])
		}
		switch {
		case row.StorageClass == "empty":
			if !strings.Contains(row.Error, "the target has no") {
				t.Errorf("%s on empty: error %q", row.Step, row.Error)
			}
		case row.Error != "":
			t.Errorf("%s: %s", row.Step, row.Error)
		case row.Step == "pgbench init":
			if len(row.Phases) < 4 {
				t.Errorf("phases %v", row.Phases)
			}
		case row.Result.Completed == 0 || row.Result.Service.Quantile(0.99) <= 0 || row.Result.Seconds < 1.4:
			t.Errorf("%s: %+v", row.Step, row.Result)
		case row.Step == "pgbench 4 clients" && !strings.Contains(strings.Join(row.Doubts, ";"), "2 clients instead of 4"):
			t.Errorf("doubts %q do not report that there were 2 clients", row.Doubts)
		case strings.HasPrefix(row.Step, "fio") && row.MBPerSecond <= 0:
			t.Errorf("%s: no bandwidth", row.Step)
		}
	}
	if e := report.Environment; e.CPUs == 0 || e.Kernel == "" || e.Versions["fio"] == "" || e.Versions["server of local"] == "" {
		t.Errorf("environment %+v", e)
	}
	var text strings.Builder
	if err := report.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back Report
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil {
		t.Fatal(err)
	}
	if _, err := validate(t, schema(t), report); err != nil {
		t.Errorf("the result does not match schema.json: %v", err)
	}
	for _, row := range report.Rows {
		if row.Ended.Before(row.Began) || row.Began.Before(report.Began) || row.Error == "" && row.Generator <= 0 {
			t.Errorf("%s on %s: from %v to %v, the generator kept %v CPUs busy", row.Step, row.StorageClass, row.Began, row.Ended, row.Generator)
		}
		if (row.Limit == nil) != (row.Result == nil) {
			t.Errorf("%s on %s: limit %+v", row.Step, row.StorageClass, row.Limit)
		}
	}
	if strings.Contains(text.String(), db.DSN()) {
		t.Error("a connection string stands in the result")
	}
}

// A step runs the script that it names: selects change nothing.
func TestScripts(t *testing.T) {
	db := testdb.StartPostgres(t)
	for _, script := range []string{"select-only", "simple-update", "tpcb-like"} {
		r := Runner{Pgbench: testkit.Tool(t, "pgbench"), ProcFS: "/proc", Scale: 0.01, MaxClients: 1, Least: time.Second, Only: []string{"pgbench " + script + " 1 client"},
			Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
		report, err := r.Run(t.Context(), "cnpg-local-ssd", []Target{{StorageClass: "local", Engine: "postgres", DSN: db.DSN()}})
		if err != nil || len(report.Rows) != 1 || report.Rows[0].Error != "" || report.Rows[0].Result.Completed == 0 {
			t.Fatalf("%s: %v, %+v", script, err, report)
		}
		history, tellers := db.Count("select count(*) from pgbench_history"), db.Count("select count(*) from pgbench_tellers where tbalance <> 0")
		// pgbench empties the history when it starts.
		if (history > 0) != (script != "select-only") || (tellers > 0) != (script == "tpcb-like") {
			t.Errorf("after %s: %d rows of history, %d tellers were changed", script, history, tellers)
		}
	}
}

// Each step is measured on tables of its own size, not on those that the step before it left.
func TestSizes(t *testing.T) {
	db := testdb.StartPostgres(t)
	r := Runner{Sysbench: testkit.Tool(t, "sysbench"), ProcFS: "/proc", Scale: 0.0001, MaxClients: 2, Least: time.Second, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	for _, c := range []struct {
		step         string
		tables, rows int
	}{{"sysbench 10 threads", 10, 1000}, {"sysbench 300 threads", 3, 2000}} {
		r.Only = []string{c.step}
		report, err := r.Run(t.Context(), "mayastor", []Target{{StorageClass: "local", Engine: "postgres", DSN: db.DSN()}})
		if err != nil || len(report.Rows) != 1 || report.Rows[0].Error != "" || report.Rows[0].Result.Completed == 0 {
			t.Fatalf("%s: %v, %+v", c.step, err, report)
		}
		tables := db.Count("select count(*) from pg_tables where tablename like 'sbtest%'")
		if last := db.Count("select max(id) from sbtest3"); tables != c.tables || last != c.rows {
			t.Errorf("%s: %d tables of %d rows, want %d of %d", c.step, tables, last, c.tables, c.rows)
		}
	}
}

// canceller cancels when something is logged so many times.
type canceller struct {
	slog.Handler
	after  int
	cancel func()
}

func (c *canceller) Enabled(context.Context, slog.Level) bool { return true }

func (c *canceller) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "running" {
		if c.after--; c.after == 0 {
			c.cancel()
		}
	}
	return nil
}

// What was measured before an interruption is in the report, which has how much it is.
func TestRunInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	log := slog.New(&canceller{slog.DiscardHandler, 5, cancel})
	r := Runner{ProcFS: "/proc", Scale: 1, MaxClients: 1, Least: time.Second, Repeat: 3, Log: log}
	targets := []Target{{StorageClass: "a", Engine: "postgres"}, {StorageClass: "b", Engine: "postgres"}}
	report, err := r.Run(ctx, "dbench", targets)
	if !errors.Is(err, context.Canceled) || report == nil {
		t.Fatalf("%v, a report: %v", err, report != nil)
	}
	if len(report.Rows) != 4 || !strings.HasSuffix(report.Source, "Interrupted after 4 of 54 runs.") {
		t.Errorf("%d rows, %q", len(report.Rows), report.Source)
	}
	if done, planned, ok := report.Interrupted(); !ok || done != 4 || planned != 54 {
		t.Errorf("interrupted: %v, after %d of %d runs", ok, done, planned)
	}
	if report, err := r.Run(ctx, "dbench", targets); report != nil || !errors.Is(err, context.Canceled) {
		t.Errorf("before the first run: %v, a report: %v", err, report != nil)
	}
}

// After each run what was measured so far is saved, as of a matrix that was interrupted there; that it cannot be saved
// ends nothing.
func TestRunSaves(t *testing.T) {
	var sizes []int
	r := Runner{ProcFS: "/proc", Scale: 1, MaxClients: 1, Least: time.Second, Repeat: 2, Log: slog.New(slog.DiscardHandler)}
	r.Save = func(part *Report) error {
		done, planned, ok := part.Interrupted()
		if sizes = append(sizes, len(part.Rows)); !ok || done != len(part.Rows) || planned != 4 || len(part.Classes) != 2 {
			t.Errorf("saved with %d rows, %d classes: %s", len(part.Rows), len(part.Classes), part.Source)
		}
		if _, err := validate(t, schema(t), part); err != nil {
			t.Errorf("what is saved does not match schema.json: %v", err)
		}
		return errors.New("no space left")
	}
	report, err := r.Run(t.Context(), "wal", []Target{{StorageClass: "a", Engine: "postgres"}, {StorageClass: "b", Engine: "postgres"}})
	if err != nil || len(report.Rows) != 4 || !slices.Equal(sizes, []int{1, 2, 3, 4}) {
		t.Fatalf("saved with %v rows: %v", sizes, err)
	}
	if _, _, ok := report.Interrupted(); ok {
		t.Errorf("the whole is of an interrupted one: %s", report.Source)
	}
	if err := report.Failed(); err == nil || !strings.Contains(err.Error(), "4 of 4 runs failed; the first, fio wal 8k on a: the target has no directory") {
		t.Errorf("all failed: %v", err)
	}
	if report.Rows[2].Error = ""; report.Failed() == nil || !strings.Contains(report.Failed().Error(), "3 of 4 runs failed") {
		t.Errorf("three of them did: %v", report.Failed())
	}
	report.Rows[0].Error, report.Rows[1].Error = "", ""
	if report.Failed() != nil {
		t.Errorf("one of them did: %v", report.Failed())
	}
}

func TestRunRefuses(t *testing.T) {
	r := Runner{Scale: 1, MaxClients: 1, Least: time.Second, ProcFS: "/proc", Log: slog.New(slog.DiscardHandler)}
	if _, err := r.Run(t.Context(), "tpc-z", nil); err == nil || !strings.Contains(err.Error(), "dalibo") {
		t.Errorf("unknown matrix: %v; the error must list those there are", err)
	}
	// Reported before anything is run, also with another step that there is.
	ran := filepath.Join(t.TempDir(), "ran")
	r.FIO = filepath.Join(t.TempDir(), "fio")
	if err := os.WriteFile(r.FIO, []byte("#!/bin/sh\n: > "+ran+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.Only = []string{"fio wal 8k", "nothing"}
	r.Save = func(*Report) error { return nil }
	if _, err := r.Run(t.Context(), "wal", []Target{{StorageClass: "a"}}); err == nil || !strings.Contains(err.Error(), `named "nothing"; there are fio wal 8k`) {
		t.Errorf("a step that is not there: %v", err)
	}
	if _, err := os.Stat(ran); err == nil {
		t.Error("fio was run before")
	}
	r.Scale = 0
	if _, err := r.Run(t.Context(), "wal", nil); err == nil || !strings.Contains(err.Error(), "scale") {
		t.Errorf("scale 0: %v", err)
	}
}

// Steps and rounds whose numbers meet are not taken for each other: step a1 in round 1, and step a in round 11.
func TestTurnsThatMeet(t *testing.T) {
	run := func(step, class string, round int, mean float64) Row {
		return Row{Step: step, StorageClass: class, Round: round, CPUIdle: 1, Result: &result.Result{Seconds: 60, Completed: 2000, Service: result.Latency{Mean: mean}}}
	}
	r := Report{Repeat: 11, Targets: []Target{{StorageClass: "disk", Local: true}, {StorageClass: "r3"}},
		Rows: []Row{run("a", "disk", 11, 0.1), run("a1", "r3", 1, 0.01), run("a", "r3", 11, 0.2)}}
	r.judge()
	if d := r.Rows[1].Doubts; len(d) != 0 {
		t.Errorf("step a1 is compared with the local disk's step a: %v", d)
	}
	var page strings.Builder
	if err := r.WriteMarkdown(&page); err != nil {
		t.Fatal(err)
	}
	if text := page.String(); !strings.Contains(text, "| 2.00 |") || strings.Contains(text, "| 0.10 |") {
		t.Errorf("the page has other ratios to the local disk:\n%s", text)
	}
}

// A class may have several databases where each is measured, and only there.
func TestReadDatabases(t *testing.T) {
	path := filepath.Join(t.TempDir(), "targets.yaml")
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("targets:\n  - {storageclass: r3, database: db/single}\n  - {storageclass: r3, database: db/synchronous}\n  - {storageclass: r3}\n")
	if got, err := ReadDatabases(path); err != nil || len(got) != 3 || got[1].Database != "db/synchronous" {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := ReadTargets(path); err == nil || !strings.Contains(err.Error(), "storageclass r3 is there twice") {
		t.Errorf("a matrix takes a class twice: %v", err)
	}
	write("targets:\n  - {storageclass: r3, database: db/single}\n  - {storageclass: r3, database: db/single}\n")
	if _, err := ReadDatabases(path); err == nil || !strings.Contains(err.Error(), "database db/single of storageclass r3 is there twice") {
		t.Errorf("a database twice: %v", err)
	}
}
