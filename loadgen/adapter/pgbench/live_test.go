package pgbench

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// rig is a pgbench load on a real server.
type rig struct {
	db         *testdb.Postgres
	load       *metrics.Load
	supervisor *adapter.Supervisor
	tool       *Tool
	work       string
}

func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	r := &rig{db: testdb.StartPostgres(t), work: t.TempDir()}
	config := Config{Path: testkit.Tool(t, "pgbench"), DSN: r.db.DSN(), Rate: 300, Clients: 4, Jobs: 2,
		Protocol: "simple", Builtin: "tpcb-like", MaxTries: 1, Scale: 1, WorkDir: r.work}
	if change != nil {
		change(&config)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	r.load = metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "pgbench", Profile: "tpcb-like"},
		metrics.Options{Target: config.Rate, Penalty: 10 * time.Second})
	r.supervisor = &adapter.Supervisor{Load: r.load, Log: log, Rate: config.Rate}
	var err error
	if r.tool, err = New(config, r.load, log, r.supervisor.Up); err != nil {
		t.Fatal(err)
	}
	if err := r.tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// What loadgen counted must be exactly what pgbench reports at its end.
func TestCountsEqualPgbenchsOwn(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.LatencyLimit, c.Rate = 5*ms, 600 })
	var ended adapter.Ended
	stop := testload.Start(t, func(ctx context.Context) { ended = r.tool.Once(ctx) })
	testload.Measure(t, r.load, 800)
	stop()
	got, want := r.load.Tally(), r.tool.Total()
	if !want.Seen {
		t.Fatalf("pgbench printed no totals: %v", ended.Err)
	}
	t.Logf("completed %d and skipped %d, pgbench %d and %d; p99 response %v service %v", got.Completed, got.Skipped[metrics.Late], want.Processed, want.Skipped,
		got.Response.Quantile(0.99), got.Service.Quantile(0.99))
	if got.Completed != want.Processed || got.Skipped[metrics.Late] != want.Skipped || got.Errors[metrics.Other] != want.Failed {
		t.Errorf("counted %d completed, %d skipped; pgbench reports %+v", got.Completed, got.Skipped[metrics.Late], want)
	}
	if got.Offered != want.Processed+want.Skipped || got.ParseErrors != 0 || got.Lost != 0 {
		t.Errorf("offered %d, parse errors %d, lost %d", got.Offered, got.ParseErrors, got.Lost)
	}
	if mean := got.Service.Mean() * 1000; want.Processed > 0 && (mean <= 0 || mean > want.LatencyMean+0.01 && want.LatencyMean > 0) {
		t.Errorf("mean service time of %.3f ms is above pgbench's mean latency of %.3f ms", mean, want.LatencyMean)
	}
	left, err := os.ReadDir(r.work)
	if err != nil || len(left) > 0 {
		t.Errorf("left in the work folder: %v, %v", left, err)
	}
}

// A closed loop has service times only, and the same exact count.
func TestClosedLoop(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(c *Config) { c.Rate = 0 })
	stop := testload.Start(t, func(ctx context.Context) { r.tool.Once(ctx) })
	testload.Await(t, r.load, 500)
	stop()
	got := r.load.Tally()
	if own := r.tool.Total(); got.Completed != own.Processed || got.Service.Count() != got.Completed || got.Response.Count() != 0 {
		t.Errorf("completed %d, %d service and %d response times; pgbench reports %+v", got.Completed, got.Service.Count(), got.Response.Count(), own)
	}
}

// Every transaction the server committed before a kill -9 of pgbench must have been counted,
// but for the one each connection was in the middle of.
func TestKillLosesNothing(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	var ended adapter.Ended
	stop := testload.Start(t, func(ctx context.Context) { ended = r.tool.Once(ctx) })
	testload.Await(t, r.load, 300)
	if err := syscall.Kill(r.tool.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if r.tool.PID() != 0 {
			return fmt.Errorf("pgbench still runs")
		}
		return nil
	})
	stop()
	if ended.Reason != metrics.Killed {
		t.Errorf("ended for reason %q (%v), want %q", ended.Reason, ended.Err, metrics.Killed)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := r.db.Count("select count(*) from pg_stat_activity where application_name = 'pgbench'"); n > 0 {
			return fmt.Errorf("%d connections of pgbench left", n)
		}
		return nil
	})
	committed, counted := r.db.Count("select count(*) from pgbench_history"), int(r.load.Tally().Completed)
	t.Logf("the server committed %d, counted %d", committed, counted)
	if counted > committed || counted < committed-4 {
		t.Errorf("the server committed %d transactions, counted %d; 4 connections may have had one under way", committed, counted)
	}
}

// A killed pgbench is started again and the counters go on from where they were.
func TestRestartsAfterKill(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stop := testload.Start(t, func(ctx context.Context) { r.supervisor.Run(ctx, r.tool.Once) })
	testload.Await(t, r.load, 100)
	first := r.tool.PID()
	if err := syscall.Kill(first, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testload.Until(t, r.load, "a restart", func(m metrics.Tally) bool { return m.Restarts[metrics.Killed] == 1 })
	before := r.load.Tally()
	if before.Completed < 100 {
		t.Errorf("the counter went back to %d", before.Completed)
	}
	testload.Await(t, r.load, before.Completed+100)
	if now := r.tool.PID(); now == 0 || now == first {
		t.Errorf("process ID %d, was %d", now, first)
	}
	if m := r.load.Tally(); m.Skipped[metrics.Tool] == 0 || m.Skipped[metrics.Down] > 0 || m.Response.Above(9*time.Second) > 0 {
		t.Errorf("what fell due while pgbench was down was not counted, or as the server's: skipped %v, %d slow", m.Skipped, m.Response.Above(9*time.Second))
	}
	stop()
}

// A server that goes away and comes back costs errors, never the load.
func TestServerRestart(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stop := testload.Start(t, func(ctx context.Context) { r.supervisor.Run(ctx, r.tool.Once) })
	testload.Await(t, r.load, 100)
	r.db.Stop()
	testload.Until(t, r.load, "a server that is down", func(m metrics.Tally) bool {
		return m.Restarts[metrics.ServerDown] >= 2 && m.Errors[metrics.Connection] >= 3 && m.Phase == metrics.Unserved
	})
	down := r.load.Tally()
	if down.Skipped[metrics.Down] == 0 || down.Response.Above(9*time.Second) < down.Skipped[metrics.Down] {
		t.Errorf("%d fell due in the outage, %d counted as slow", down.Skipped[metrics.Down], down.Response.Above(9*time.Second))
	}
	r.db.Start()
	testload.Await(t, r.load, down.Completed+100)
	if got := r.load.Tally(); got.Phase != metrics.Steady || got.Offered < down.Offered {
		t.Errorf("phase %s, offered %d, before %d", got.Phase, got.Offered, down.Offered)
	}
	stop()
}

// One lost connection lowers pgbench's load for good: it has to be started again.
func TestOneLostConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	stop := testload.Start(t, func(ctx context.Context) { r.supervisor.Run(ctx, r.tool.Once) })
	testload.Await(t, r.load, 100)
	r.db.Exec("select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'pgbench' limit 1")
	testload.Until(t, r.load, "one restart for one lost connection", func(m metrics.Tally) bool {
		return m.Restarts[metrics.ServerDown] == 1 && m.Errors[metrics.Connection] == 1
	})
	testload.Await(t, r.load, r.load.Tally().Completed+100)
	if n := r.db.Count("select count(*) from pg_stat_activity where application_name = 'pgbench'"); n != 4 {
		t.Errorf("%d connections, want 4", n)
	}
	stop()
}

// Tables that are complete are left alone; half-made ones are made afresh.
func TestInitIsIdempotent(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.db.Exec("insert into pgbench_history values (1, 1, 1, 1, now(), 'kept')")
	if err := r.tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.db.Count("select count(*) from pgbench_history"); n != 1 {
		t.Errorf("%d rows in the history, want the one put there: the tables were made again", n)
	}
	r.db.Exec("alter table pgbench_accounts drop constraint pgbench_accounts_pkey")
	if err := r.tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.db.Count("select count(*) from pgbench_history"); n != 0 {
		t.Errorf("%d rows in the history: half-made tables were kept", n)
	}
}

// Tables of another scale are not measured for the requested ones: loadgen's own are made afresh, others are refused
// and stay.
func TestInitOfAnotherScale(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	scale := func() int { return r.db.Count("select count(*) from pgbench_branches") }
	r.tool.config.Scale = 2
	if err := r.tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := scale(); n != 2 {
		t.Errorf("the tables have scale %d, want 2", n)
	}
	r.db.Exec("comment on table pgbench_branches is null") // as if somebody else had made them
	if err := r.tool.Init(t.Context()); err != nil {
		t.Errorf("tables of the configured scale: %v", err)
	}
	r.tool.config.Scale = 1
	if err := r.tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "scale 2, not 1") {
		t.Errorf("somebody's tables of scale 2, configured 1: %v", err)
	}
	if n := scale(); n != 2 {
		t.Errorf("somebody's tables of scale 2 have scale %d now", n)
	}
}

// Tables that loadgen did not make are not dropped, complete or not; the rest of its own interrupted call is made
// afresh.
func TestInitLeavesOthers(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	count := func(query string) int { return r.db.Count("select count(*) from " + query) }
	noted := func() int { return count("pg_tables where tablename like 'plumbline%'") }
	if n := noted(); n != 0 {
		t.Errorf("%d notes after the tables were made", n)
	}
	remake := func(context.Context) error { _, err := r.tool.Remake(t.Context()); return err }
	refused := func(what string, f func(context.Context) error, want string) {
		t.Helper()
		if err := f(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", what, err, want)
		}
		if count("pgbench_history") != 1 || noted() != 0 {
			t.Errorf("%s were made afresh", what)
		}
	}
	r.db.Exec("insert into pgbench_history values (1, 1, 1, 1, now(), 'kept')")
	r.db.Exec("comment on table pgbench_branches is null") // as if somebody else had made them
	refused("somebody's tables", remake, "exist with scale 1, and loadgen did not make them")
	r.db.Exec("alter table pgbench_accounts drop constraint pgbench_accounts_pkey")
	refused("somebody's tables without a key", r.tool.Init, "not all of them with a primary key")
	refused("somebody's tables without a key", remake, "not all of them with a primary key")
	r.db.Exec("drop table pgbench_accounts, pgbench_branches, pgbench_tellers")
	refused("the rest of somebody's tables", r.tool.Init, "not all of them with a primary key")
	r.db.Exec("drop table pgbench_history")

	// The tables are made, and the call is interrupted before they are marked.
	pgbench := r.tool.config.Path
	r.tool.config.Path = filepath.Join(t.TempDir(), "pgbench")
	if err := os.WriteFile(r.tool.config.Path, []byte("#!/bin/sh\n"+pgbench+" \"$@\"\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	interrupt := func() {
		t.Helper()
		if err := r.tool.Init(t.Context()); err == nil || noted() != 1 {
			t.Errorf("of a pgbench that fails: %v, %d notes", err, noted())
		}
	}
	again := func(scale int) {
		t.Helper()
		path := r.tool.config.Path
		r.tool.config.Path, r.tool.config.Scale = pgbench, scale
		if err := r.tool.Init(t.Context()); err != nil {
			t.Error(err)
		}
		if got := count("pgbench_branches"); got != scale || noted() != 0 {
			t.Errorf("scale %d, want %d, %d notes", got, scale, noted())
		}
		r.tool.config.Path = path
	}
	interrupt()
	again(1)
	again(2) // they are marked: else this would be refused
	r.tool.config.Scale = 1
	interrupt()
	r.tool.config.Scale = 2
	interrupt()
	r.db.Exec("alter table pgbench_accounts drop constraint pgbench_accounts_pkey")
	again(1)

	r.tool.config.Path, r.tool.config.Scale = "/nowhere/pgbench", 2
	if err := r.tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/pgbench") || noted() != 0 {
		t.Errorf("without a program: %v, %d notes", err, noted())
	}
}

// Tables are made though they cannot be marked; they are somebody's then.
func TestInitWithoutMarks(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.db.ForbidComments("%pgbench_branches")
	for range 2 {
		r.tool.config.Scale = 2
		if err := r.tool.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := r.db.Count("select count(*) from pg_tables where tablename like 'plumbline%'"); n != 0 {
			t.Errorf("%d notes that tables are made", n)
		}
	}
	r.tool.config.Scale = 1
	if err := r.tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "loadgen did not make them") {
		t.Errorf("of tables that are not marked, with another scale configured: %v", err)
	}
}

func TestMakingOf(t *testing.T) {
	if scale := makingOf(fmt.Sprintf(makingForm, 5000)); scale != 5000 {
		t.Errorf("a note of scale 5000 is read as %d", scale)
	}
	for _, comment := range []string{"", "loadgen makes tables of scale x", fmt.Sprintf(makingForm, 5) + "!", "loadgen makes pgbench's tables of scale 05"} {
		if scale := makingOf(comment); scale != 0 {
			t.Errorf("%q is read as scale %d", comment, scale)
		}
	}
}

// A reader that is late loses nothing; the writer waits for it.
func TestTerminalKeepsEveryLine(t *testing.T) {
	terminal, err := newTerminal()
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	defer terminal.Close()
	const lines = 20000
	writer := exec.Command("sh", "-c", `exec seq 1 `+fmt.Sprint(lines)+` > "$1"`, "sh", terminal.path)
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- writer.Wait() }()
	select {
	case <-ended:
		t.Error("the writer did not wait for a reader; were lines dropped?")
	case <-time.After(200 * time.Millisecond):
	}
	done := make(chan int)
	go func() {
		n := 0
		adapter.Lines(terminal.master, func(line string) {
			if n++; strings.TrimSpace(line) != fmt.Sprint(n) {
				t.Errorf("line %d is %q", n, line)
			}
		})
		done <- n
	}()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	terminal.keep.Close()
	if n := <-done; n != lines {
		t.Errorf("%d lines came, %d were written", n, lines)
	}
}

func TestMissingProgramEndsNotTheProcess(t *testing.T) {
	load := metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "pgbench"}, metrics.Options{})
	tool, err := New(Config{Path: "/nowhere/pgbench", Clients: 1, Jobs: 1, WorkDir: t.TempDir()}, load, slog.New(slog.DiscardHandler), func() {})
	if err != nil {
		t.Fatal(err)
	}
	ended := tool.Once(t.Context())
	if ended.Err == nil || !strings.Contains(ended.Err.Error(), "/nowhere/pgbench") {
		t.Errorf("ended with %v; the error must name the program", ended.Err)
	}
}
