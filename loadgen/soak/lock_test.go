package soak

import (
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/internal/flock"
)

// lockBy has folders locked by another function than the kernel's until the test's end. Its test runs beside no other.
func lockBy(t *testing.T, f func(fd, how int) error) {
	t.Helper()
	flock.Kernel = f
	t.Cleanup(func() { flock.Kernel = unix.Flock })
}

// A folder on which a soak runs takes no second one, of any plan; it is read meanwhile. What ends the soak frees it.
func TestOneSoakAFolder(t *testing.T) {
	folder := t.TempDir()
	s, _, err := open(folder, longPlan(1), evening)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sample(sampleAt(evening.Add(time.Second), "r3", 7, time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for _, days := range []int{1, 2} {
		if _, _, err := open(folder, longPlan(days), evening); err == nil || !strings.Contains(err.Error(), folder+": another soak runs on this folder") {
			t.Errorf("a second soak on a folder: %v", err)
		}
	}
	if d := read(t, folder); len(d.Samples) != 1 {
		t.Errorf("%d samples are read while the soak runs, want 1", len(d.Samples))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(folder, longPlan(2), evening); err == nil || !strings.Contains(err.Error(), "another plan") {
		t.Errorf("a soak of another plan: %v", err)
	}
	if s, _, err = open(folder, longPlan(1), evening); err != nil {
		t.Fatalf("after the first's end, and one that was refused: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// What ends or is refused frees its folder, also if a process that is just being started has a copy of the descriptor.
func TestCopyKeepsNoLock(t *testing.T) {
	lockBy(t, func(fd, how int) error {
		if how != unix.LOCK_UN {
			held, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
			if err != nil {
				return err
			}
			t.Cleanup(func() { _ = unix.Close(held) })
		}
		return unix.Flock(fd, how)
	})
	folder := t.TempDir()
	for range 2 {
		s, _, err := open(folder, longPlan(1), evening)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := open(folder, longPlan(2), evening); err == nil || !strings.Contains(err.Error(), "another plan") {
			t.Errorf("a soak of another plan: %v", err)
		}
	}
}

// On a file system without locks (a fake one) a soak runs, and logs that it is not alone for sure. Another failure is
// an error.
func TestNoLocks(t *testing.T) {
	for _, c := range []struct {
		err  error
		runs bool
	}{{unix.ENOLCK, true}, {unix.ENOSYS, true}, {unix.EOPNOTSUPP, true}, {unix.EIO, false}} {
		lockBy(t, func(int, int) error { return c.err })
		var log strings.Builder
		folder := t.TempDir()
		s, err := Open(folder, longPlan(1), prometheus.NewRegistry(), slog.New(slog.NewTextHandler(&log, nil)))
		path := filepath.Join(folder, lockFile)
		if !c.runs {
			if err == nil || !strings.Contains(err.Error(), path+": it cannot be locked: "+c.err.Error()) {
				t.Errorf("%v: %v", c.err, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.store.close(); err != nil {
			t.Errorf("%v: at its end %v", c.err, err)
		}
		if strings.Count(log.String(), "level=WARN") != 1 || !strings.Contains(log.String(), path+": "+c.err.Error()) {
			t.Errorf("%v: logged\n%s", c.err, &log)
		}
	}
}
