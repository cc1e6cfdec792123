package query

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/testkit"
)

// queryOf is a collector without kernel, and its fleet, that has found one candidate in procfs.
func queryOf(t *testing.T, procfs string) (*query, *fleet, []server.Candidate) {
	t.Helper()
	f, _ := testFleet(2)
	calls := untrusted.NewCalls(time.Hour, 8)
	q := &query{log: slog.New(slog.DiscardHandler), fleet: f, calls: calls, scanner: server.NewScanner(procfs, calls), options: collector.Options{ProcFS: procfs, SysFS: procfs},
		scans: map[server.ID]bool{}, tried: map[server.ID]trial{}, problems: map[server.ID]error{}}
	candidates, err := q.scanner.Candidates()
	if len(candidates) != 1 || err != nil {
		t.Fatalf("candidates %+v, %v", candidates, err)
	}
	return q, f, candidates
}

// A scan that is answered when nobody waits for it any more counts, unless the server has ended meanwhile.
func TestLateScan(t *testing.T) {
	for _, ended := range []bool{false, true} {
		procfs := t.TempDir()
		dir := filepath.Join(procfs, "7")
		stat, line := filepath.Join(dir, "stat"), filepath.Join(dir, "cmdline")
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, "fd"), 0o700), unix.Mkfifo(line, 0o600),
			os.WriteFile(stat, []byte("7 (mariadbd) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "status"), []byte("Uid:\t7\t7\t7\t7\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		q, f, candidates := queryOf(t, procfs)
		q.scanCandidates(candidates, true, time.Millisecond)
		if len(f.tracked) != 0 {
			t.Fatal("it is followed without an answer")
		}
		if ended {
			if err := os.Remove(stat); err != nil {
				t.Fatal(err)
			}
		}
		w, err := os.OpenFile(line, os.O_WRONLY, 0) // it is being read
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.WriteString("mariadbd\x00"); err != nil {
			t.Fatal(err)
		}
		w.Close()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			q.mu.Lock()
			defer q.mu.Unlock()
			if n := len(q.scans); n != 0 {
				return fmt.Errorf("%d scans are under way", n)
			}
			return nil
		})
		q.mu.Lock()
		if followed := len(f.tracked) == 1; followed == ended || f.attachErrors["mariadb"] != nil {
			t.Errorf("ended %v: it is followed %v", ended, followed)
		}
		q.mu.Unlock()
	}
}

// What was taken for a server while its command line hung is left when that shows that it serves nobody.
func TestNoServerAfterAll(t *testing.T) {
	procfs := t.TempDir()
	dir := filepath.Join(procfs, "7")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "fd"), 0o700),
		os.WriteFile(filepath.Join(dir, "cmdline"), []byte("redis-server\x00--sentinel\x00"), 0o600),
		os.WriteFile(filepath.Join(dir, "stat"), []byte("7 (redis-server) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "status"), []byte("Uid:\t7\t7\t7\t7\n"), 0o600)); err != nil {
		t.Fatal(err)
	}
	q, f, candidates := queryOf(t, procfs)
	s := running(7, "", 6379)
	s.ID, s.DBSystem = candidates[0].ID, server.Redis
	f.update([]observation{s}, begin)
	if len(f.tracked) != 1 {
		t.Fatal("it is not followed")
	}
	q.scanCandidates(candidates, false, testkit.DefaultTimeout)
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(f.tracked) != 0 {
		t.Error("it is still followed")
	}
}
