package sysbench

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
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

func TestParseEvent(t *testing.T) {
	for line, want := range map[string]Event{
		"c 1500 1200": {Kind: 'c', Response: 1500 * time.Microsecond, Service: 1200 * time.Microsecond},
		"f 7":         {Kind: 'f', Response: 7 * time.Microsecond, Error: metrics.Connection},
		"f 7 SQL error, errno = 0, state = '53100': could not extend file: No space left on device": {Kind: 'f', Response: 7 * time.Microsecond, Error: metrics.Storage,
			Words: "SQL error, errno = 0, state = '53100': could not extend file: No space left on device"},
		"r 1213": {Kind: 'r', Error: metrics.Deadlock},
		"r 0":    {Kind: 'r', Error: metrics.Serialization},
		"r nil":  {Kind: 'r', Error: metrics.Other},
	} {
		if got, err := ParseEvent(line); err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", line, got, err, want)
		}
	}
	for _, line := range []string{"", "c", "c 1", "c 1 2", "c -1 -2", "c 1 1 1", "f x", "x 1", "c 99999999999999999999 1", "[ 1s ] thds: 4"} {
		if got, err := ParseEvent(line); err == nil {
			t.Errorf("%q was taken as %+v", line, got)
		}
	}
}

func FuzzParseEvent(f *testing.F) {
	f.Add("c 1500 1200")
	f.Add("f 9223372036854775807")
	f.Fuzz(func(t *testing.T, line string) {
		if e, err := ParseEvent(line); err == nil && (e.Service < 0 || e.Response < e.Service) {
			t.Errorf("%q: %+v", line, e)
		}
	})
}

func TestSummary(t *testing.T) {
	text, err := os.ReadFile("testdata/summary-1.0.20.txt")
	if err != nil {
		t.Fatal(err)
	}
	var s Summary
	adapter.Lines(strings.NewReader(string(text)), s.Line)
	if s != (Summary{true, 148}) {
		t.Errorf("%+v, want 148 events", s)
	}
}

// rig is a sysbench load on a real server.
type rig struct {
	load       *metrics.Load
	supervisor *adapter.Supervisor
	tool       *Tool
	work       string
}

// newTool is a load of two tables of 500 rows that are not made yet.
func newTool(t *testing.T, target Target) *Tool {
	t.Helper()
	return bareRig(t, target).tool
}

func newRig(t *testing.T, target Target) *rig {
	t.Helper()
	r := bareRig(t, target)
	for range 2 { // the second time there is nothing to do
		if err := r.tool.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func bareRig(t *testing.T, target Target) *rig {
	t.Helper()
	r := &rig{work: t.TempDir()}
	r.load = metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "sysbench"}, metrics.Options{Penalty: 10 * time.Second})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	r.supervisor = &adapter.Supervisor{Load: r.load, Log: log, Rate: 60}
	var err error
	r.tool, err = New(Config{Path: testkit.Tool(t, "sysbench"), Script: "oltp_read_write", Target: target, Rate: 60, Threads: 3, Tables: 2,
		TableSize: 500, WorkDir: r.work}, r.load, log, r.supervisor.Up)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// On both engines: the count equals sysbench's own, a kill loses nothing counted, a server
// restart costs errors and not the load.
func TestLive(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartPostgres(t)
		live(t, Target{"postgres", db.DSN()}, db.Stop, db.Start)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartMariaDB(t)
		live(t, Target{"mysql", db.DSN()}, db.Stop, db.Start)
	})
}

// logWaits logs, if the test has failed, what sysbench's threads wait for in the kernel, and what the server does for
// them.
func (r *rig) logWaits(t *testing.T, target Target) {
	if !t.Failed() || r.tool.PID() == 0 {
		return
	}
	tasks, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", r.tool.PID()))
	if err != nil {
		t.Error(err)
	}
	for _, task := range tasks {
		// wchan is the kernel's function, syscall the call's number and arguments.
		wchan, err := os.ReadFile(filepath.Join(task, "wchan"))
		call, err2 := os.ReadFile(filepath.Join(task, "syscall"))
		t.Logf("sysbench's thread %s: %s, system call %s %v", filepath.Base(task), wchan, strings.TrimSpace(string(call)), errors.Join(err, err2))
	}
	sessions, err := sessions(target)
	t.Logf("the server's sessions (%v):\n%s", err, strings.Join(sessions, "\n"))
}

// sessions are the server's, each with what it does.
func sessions(target Target) (lines []string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if target.Engine == "postgres" {
		db, err := adapter.Connect(ctx, target.DSN)
		if err != nil {
			return nil, err
		}
		defer db.Close(ctx)
		err = db.QueryRow(ctx, `select array_agg(concat_ws(' ', pid, state, now() - state_change, wait_event_type, wait_event, query))
			from pg_stat_activity where backend_type = 'client backend'`).Scan(&lines)
		return lines, err
	}
	db, err := sql.Open("mysql", target.DSN)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "select concat_ws(' ', id, command, time, state, info) from information_schema.processlist")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return lines, err
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

func live(t *testing.T, target Target, stopServer, startServer func()) {
	r := newRig(t, target)
	var ended adapter.Ended
	stop := testload.Start(t, func(ctx context.Context) { ended = r.tool.Once(ctx) })
	t.Cleanup(func() { r.logWaits(t, target) }) // before the load is stopped
	testload.Measure(t, r.load, 120)
	stop()
	got, own := r.load.Tally(), r.tool.Total()
	t.Logf("counted %d events, sysbench %d", got.Completed, own.Events)
	if !own.Seen || got.Completed != own.Events || got.ParseErrors != 0 || got.Lost != 0 {
		t.Errorf("counted %d, parse errors %d, lost %d; sysbench reports %+v (%v)", got.Completed, got.ParseErrors, got.Lost, own, ended.Err)
	}
	if got.Service.Mean() <= 0 || got.Response.Mean() < got.Service.Mean() {
		t.Errorf("mean response %v s, service %v s", got.Response.Mean(), got.Service.Mean())
	}
	if left, err := os.ReadDir(r.work); err != nil || len(left) > 0 {
		t.Errorf("left in the work folder: %v, %v", left, err)
	}

	stop = testload.Start(t, func(ctx context.Context) { r.supervisor.Run(ctx, r.tool.Once) })
	t.Cleanup(func() { r.logWaits(t, target) }) // before the load is stopped
	testload.Await(t, r.load, got.Completed+30)
	before := r.load.Tally().Completed
	if err := syscall.Kill(r.tool.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	testload.Until(t, r.load, "a restart", func(m metrics.Tally) bool { return m.Restarts[metrics.Killed] == 1 })
	if now := r.load.Tally().Completed; now < before {
		t.Errorf("the counter went back from %d to %d", before, now)
	}
	testload.Await(t, r.load, before+30)

	stopServer()
	testload.Until(t, r.load, "a server that is down", func(m metrics.Tally) bool {
		return m.Restarts[metrics.ServerDown] >= 1 && m.Errors[metrics.Connection] >= 2 && m.Skipped[metrics.Down] >= 1
	})
	startServer()
	testload.Await(t, r.load, r.load.Tally().Completed+30)
	stop()
}

func TestBadConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Script: "../../etc/passwd"}, "not the name"},
		{Config{Script: "oltp_insert", Target: Target{"mysql", "u:hush@"}}, "connection string"},
	} {
		_, err := New(c.config, nil, nil, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("%+v: %v", c.config, err)
		}
	}
}

// What sysbench cannot do as the connection string demands it is refused.
func TestRefusedTargets(t *testing.T) {
	for dsn, want := range map[string]string{
		"u:hush@tcp(db:3306)/shop?tls=skip-verify": "tls=skip-verify",
		"u:hush@tcp(db:3306)/shop?tls=true":        "tls=true",
		"u:hush@tcp(db:3306)/shop?tls=preferred":   "",
		"u:hush@tcp(db:3306)/shop?tls=false":       "",
		"u:hush@unix(/run/s)/shop":                 "",
	} {
		_, err := New(Config{Target: Target{"mysql", dsn}, Script: "oltp_read_only"}, nil, slog.New(slog.DiscardHandler), nil)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush")) {
			t.Errorf("%s: %v", dsn, err)
		}
	}
	if _, err := New(Config{Target: Target{"postgres", "host=db sslpassword=hush"}, Script: "oltp_read_only"}, nil, slog.New(slog.DiscardHandler), nil); err == nil ||
		!strings.Contains(err.Error(), "sslpassword") || strings.Contains(err.Error(), "hush") {
		t.Errorf("a key's passphrase: %v", err)
	}
}
