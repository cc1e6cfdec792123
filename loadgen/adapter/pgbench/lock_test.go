package pgbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/tests/testkit"
)

// script writes a program that does something and then is pgbench.
func script(t *testing.T, before, pgbench string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pgbench")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+before+"\nexec "+pgbench+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Of two that would make tables in one database, the second waits for the first, and takes what that made.
func TestInitOfTwo(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	folder := t.TempDir()
	begun, gate, again := filepath.Join(folder, "begun"), filepath.Join(folder, "gate"), filepath.Join(folder, "again")
	if err := syscall.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	pgbench := r.tool.config.Path
	tool := func(before string) *Tool {
		config := r.tool.config
		config.Scale, config.Path = 2, script(t, before, pgbench)
		tool, err := New(config, r.load, r.tool.log, func() {})
		if err != nil {
			t.Fatal(err)
		}
		return tool
	}
	first, second := tool(": >"+begun+"; read _ <"+gate), tool(": >"+again)
	results := make(chan error, 2)
	testload.Start(t, func(ctx context.Context) { results <- first.Init(ctx) })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { _, err := os.Stat(begun); return err })
	testload.Start(t, func(ctx context.Context) { results <- second.Init(ctx) })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := r.db.Count("select count(*) from pg_locks where locktype = 'advisory' and not granted"); n != 1 {
			return fmt.Errorf("%d wait for a lock", n)
		}
		return nil
	})
	open, err := os.OpenFile(gate, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if _, err := open.WriteString("go\n"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if n := r.db.Count("select count(*) from pgbench_branches"); n != 2 {
		t.Errorf("the tables have scale %d, want 2", n)
	}
	if _, err := os.Stat(again); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the second made the tables again: %v", err)
	}
}

// The error of one that waits in vain names the database.
func TestLockOfTheDatabase(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.db.Exec("create database other")
	open := func(dsn string) func(context.Context) (adapter.Lock, error) {
		return func(ctx context.Context) (adapter.Lock, error) { return adapter.PostgresLock(ctx, dsn, makingTable) }
	}
	alone := func(dsn string, do func(context.Context) error) error {
		return adapter.Alone{Tool: "pgbench", Timeout: 100 * time.Millisecond, Open: open(dsn), Log: slog.New(slog.DiscardHandler)}.Do(t.Context(), do)
	}
	nothing := func(context.Context) error { return nil }
	err := alone(r.db.DSN(), func(context.Context) error {
		if err := alone(strings.Replace(r.db.DSN(), "dbname=postgres", "dbname=other", 1), nothing); err != nil {
			t.Errorf("in another database: %v", err)
		}
		return alone(r.db.DSN(), nothing)
	})
	if err == nil || !strings.Contains(err.Error(), "another loadgen makes pgbench's tables in the database postgres") {
		t.Errorf("in the same database: %v", err)
	}
	if err := alone(r.db.DSN(), nothing); err != nil {
		t.Errorf("after its end: %v", err)
	}
}

// Who may have one connection has it for the tables, without the lock.
func TestLockTakesNotTheOnlyConnection(t *testing.T) {
	t.Parallel()
	r := newRig(t, nil)
	r.db.Exec("create role one login connection limit 1")
	dsn := strings.Replace(r.db.DSN(), "user=postgres", "user=one", 1)
	var log strings.Builder
	err := adapter.Alone{Tool: "pgbench", Log: slog.New(slog.NewTextHandler(&log, nil)), Open: func(ctx context.Context) (adapter.Lock, error) {
		return adapter.PostgresLock(ctx, dsn, makingTable)
	}}.Do(t.Context(), func(ctx context.Context) error {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error { // the server notices the end of the lock's connection soon
			c, err := adapter.Connect(ctx, dsn)
			if err == nil {
				err = c.Close(ctx)
			}
			return err
		})
		return nil
	})
	if err != nil || !strings.Contains(log.String(), "too many connections") {
		t.Errorf("%v; the log is %s", err, &log)
	}
}

// No timeout of the server's ends the lock's transaction, nor that for all of it, which PostgreSQL has from 17 on.
func TestLockOutlastsTimeouts(t *testing.T) {
	timeouts := map[string]string{"statement_timeout": "2s", "idle_in_transaction_session_timeout": "2s"}
	newer := maps.Clone(timeouts)
	newer["transaction_timeout"] = "2s"
	for name, start := range map[string]func(*testing.T) *servertest.Postgres{
		"the distribution's": func(t *testing.T) *servertest.Postgres { return servertest.StartPostgres(t, timeouts, nil) },
		"17":                 func(t *testing.T) *servertest.Postgres { return servertest.StartPostgresOf(t, 17, newer, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock, err := adapter.PostgresLock(t.Context(), start(t).URL, makingTable)
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if got, err := lock.Take(t.Context(), 0); !got || err != nil {
				t.Fatal(got, err)
			}
			time.Sleep(4 * time.Second) // longer than the timeouts
			if err := lock.Ping(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
