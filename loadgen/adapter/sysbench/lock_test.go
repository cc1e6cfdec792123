package sysbench

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/tests/testkit"
)

// waiting counts, for each engine, the sessions that wait for such a lock.
var waiting = map[string]string{
	"postgres": "select count(*) from pg_locks where locktype = 'advisory' and not granted",
	"mysql":    "select count(*) from information_schema.processlist where state = 'User lock'",
}

// Of two that would make tables in one database, the second waits for the first, and takes what that made. The error of
// one that waits in vain names the database.
func TestInitOfTwo(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			target, count, _ := start(t)
			folder := t.TempDir()
			begun, gate, again := filepath.Join(folder, "begun"), filepath.Join(folder, "gate"), filepath.Join(folder, "again")
			if err := syscall.Mkfifo(gate, 0o600); err != nil {
				t.Fatal(err)
			}
			tool := func(before string) *Tool {
				tool := newTool(t, target)
				path := filepath.Join(t.TempDir(), "sysbench")
				if err := os.WriteFile(path, []byte("#!/bin/sh\n"+before+"\nexec "+tool.config.Path+" \"$@\"\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				tool.config.Path = path
				return tool
			}
			first, second := tool(": >"+begun+"; read _ <"+gate), tool(": >"+again)
			results := make(chan error, 2)
			testload.Start(t, func(ctx context.Context) { results <- first.Init(ctx) })
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { _, err := os.Stat(begun); return err })
			testload.Start(t, func(ctx context.Context) { results <- second.Init(ctx) })
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if n := count(waiting[engine]); n != 1 {
					return fmt.Errorf("%d wait for a lock", n)
				}
				return nil
			})
			err := adapter.Alone{Tool: "sysbench", Timeout: 100 * time.Millisecond, Open: target.lock, Log: slog.New(slog.DiscardHandler)}.
				Do(t.Context(), func(context.Context) error { t.Error("done beside the first"); return nil })
			name := map[string]string{"postgres": "postgres", "mysql": "test"}[engine]
			if err == nil || !strings.Contains(err.Error(), "another loadgen makes sysbench's tables in the database "+name+",") {
				t.Errorf("waiting in vain returns %v", err)
			}
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
			if n := count("select count(*) from sbtest2"); n != 500 {
				t.Errorf("the second table has %d rows, want 500", n)
			}
			if _, err := os.Stat(again); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the second made the tables again: %v", err)
			}
		})
	}
}

// Where nothing is to be made, nobody is waited for.
func TestInitOfNothing(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			target, _, _ := start(t)
			tool := newRig(t, target).tool
			lock, err := target.lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer lock.Close()
			if got, err := lock.Take(t.Context(), 0); !got || err != nil {
				t.Fatal(got, err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), testkit.DefaultTimeout)
			defer cancel()
			if err := tool.Init(ctx); err != nil {
				t.Errorf("while another holds the lock: %v", err)
			}
		})
	}
}
