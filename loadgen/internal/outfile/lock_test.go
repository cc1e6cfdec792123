package outfile

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/loadgen/internal/flock"
)

// lockBy has files locked by another function than the kernel's until the test's end, and returns what is logged
// meanwhile. Its test runs beside no other.
func lockBy(t *testing.T, lock func(fd, how int) error) *strings.Builder {
	t.Helper()
	var log strings.Builder
	was := slog.Default()
	flock.Kernel = lock
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	t.Cleanup(func() {
		flock.Kernel = unix.Flock
		slog.SetDefault(was)
	})
	return &log
}

// On a file system without locks, or with broken ones (fake ones), files are written all the same, which is logged once
// of each.
func TestWithoutLocks(t *testing.T) {
	for _, cause := range []error{unix.ENOLCK, unix.EOPNOTSUPP, unix.ENOSYS, unix.EIO} {
		log := lockBy(t, func(int, int) error { return cause })
		path, beside := old(t)
		for _, text := range []string{"today", "tomorrow"} {
			// And what a killed loadgen left is no other one at work.
			if err := errors.Join(os.WriteFile(beside, []byte("half of to"), 0o600), Check(path), Write(path, writes(text))); err != nil {
				t.Fatalf("%v: %v", cause, err)
			}
			has(t, path, text)
		}
		if n := strings.Count(log.String(), "level=WARN"); n != 1 || !strings.Contains(log.String(), beside) || !strings.Contains(log.String(), cause.Error()) {
			t.Errorf("%v is logged %d times:\n%s", cause, n, log)
		}
	}
}

// NFS (a fake one) locks only what is open for writing: what another loadgen is at work on is not taken away there,
// though it has a mode that nobody may write to.
func TestAtWorkOnNFS(t *testing.T) {
	log := lockBy(t, func(fd, how int) error {
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_ACCMODE == unix.O_RDONLY {
			return errors.Join(unix.EBADF, err)
		}
		return unix.Flock(fd, how)
	})
	was := busyTimeout
	defer func() { busyTimeout = was }()
	path, beside := old(t)
	p, err := find(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.beside()
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.Chmod(0o400); err != nil {
		t.Fatal(err)
	}
	busyTimeout = 0
	if err := Write(path, writes("today")); !errors.Is(err, errAtWork) {
		t.Errorf("it gave %v", err)
	}
	if _, err := os.Stat(beside); err != nil || log.Len() > 0 {
		t.Errorf("what another one is at work on: %v\n%s", err, log)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	busyTimeout = time.Minute
	if err := Write(path, writes("today")); err != nil {
		t.Fatal(err)
	}
	has(t, path, "today")
}

// A file is on the disk before it has its name, with its mode, and then its name is.
func TestSynced(t *testing.T) {
	path, beside := old(t)
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	var synced []string
	fsync = func(f *os.File) error {
		text, err := os.ReadFile(path)
		info, statErr := f.Stat()
		if err := errors.Join(err, statErr); err != nil {
			t.Error(err)
		}
		if f.Name() == beside && info.Mode().Perm() != 0o640 {
			t.Errorf("it has the mode %v", info.Mode())
		}
		synced = append(synced, f.Name()+" while there is "+string(text))
		return f.Sync()
	}
	defer func() { fsync = (*os.File).Sync }()
	if err := Write(path, writes("today")); err != nil {
		t.Fatal(err)
	}
	want := []string{beside + " while there is yesterday", filepath.Dir(path) + " while there is today"}
	if strings.Join(synced, "; ") != strings.Join(want, "; ") {
		t.Errorf("synced are %q, want %q", synced, want)
	}
	// A file system that syncs no folders (a fake one) is no reason to report that a file was not written, a broken
	// disk is.
	for cause, fails := range map[error]bool{unix.EINVAL: false, unix.EOPNOTSUPP: false, unix.EIO: true} {
		fsync = func(f *os.File) error {
			if info, err := f.Stat(); err == nil && info.IsDir() {
				return cause
			}
			return f.Sync()
		}
		err := Write(path, func(w io.Writer) error { return writes("today")(w) })
		if errors.Is(err, cause) != fails {
			t.Errorf("%v: %v", cause, err)
		}
	}
}
