package outfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// old makes a file of yesterday, and returns its path and that of its temporary file.
func old(t *testing.T) (path, beside string) {
	t.Helper()
	folder := t.TempDir()
	path, beside = filepath.Join(folder, "today.json"), filepath.Join(folder, ".today.json.loadgen-tmp")
	if err := os.WriteFile(path, []byte("yesterday"), 0o644); err != nil {
		t.Fatal(err)
	}
	return path, beside
}

// mount mounts what the test needs, until it ends.
func mount(t *testing.T, source, target, kind string, flags uintptr) {
	t.Helper()
	testkit.NeedRoot(t)
	if err := unix.Mount(source, target, kind, flags, ""); err != nil {
		testkit.Skip(t, "nothing can be mounted: "+err.Error())
	}
	t.Cleanup(func() {
		if err := unix.Unmount(target, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// What a killed loadgen left beside a file is taken away by the next one.
func TestLeftover(t *testing.T) {
	path, beside := old(t)
	if err := errors.Join(os.WriteFile(beside, []byte("half of to"), 0o400), Check(path)); err != nil {
		t.Fatal(err)
	}
	has(t, path, "yesterday")
	if err := errors.Join(os.WriteFile(beside, []byte("half of to"), 0o400), Write(path, writes("today"))); err != nil {
		t.Fatal(err)
	}
	has(t, path, "today")
}

// What is in the way is named, neither followed nor taken away, and no reason to write over what is there.
func TestInTheWay(t *testing.T) {
	path, beside := old(t)
	other := filepath.Join(t.TempDir(), "other")
	if err := errors.Join(os.WriteFile(other, []byte("somebody's"), 0o644), os.Symlink(other, beside)); err != nil {
		t.Fatal(err)
	}
	called := false
	err := File{Path: path, Before: func() error { called = true; return nil }}.Write(writes("today"))
	for _, err := range []error{err, Check(path)} {
		if err == nil || !strings.Contains(err.Error(), beside+" is in the way") {
			t.Errorf("it gave %v", err)
		}
	}
	has(t, other, "somebody's")
	if err := os.Remove(beside); err != nil || called {
		t.Errorf("the link is gone (%v), or what is to be done before was done: %v", err, called)
	}
	has(t, path, "yesterday")
}

// Somebody else's file is left alone, too.
func TestSomebodyElses(t *testing.T) {
	testkit.NeedRoot(t)
	path, beside := old(t)
	if err := errors.Join(os.WriteFile(beside, nil, 0o644), os.Chown(beside, 12345, 12345)); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, writes("today")); err == nil || !strings.Contains(err.Error(), beside+" is in the way") {
		t.Errorf("it gave %v", err)
	}
	if err := os.Remove(beside); err != nil {
		t.Error(err)
	}
	has(t, path, "yesterday")
}

// While another loadgen is at work on a file it is waited for.
func TestAtWork(t *testing.T) {
	was := busyTimeout
	defer func() { busyTimeout = was }()
	path, _ := old(t)
	p, err := find(path)
	if err != nil {
		t.Fatal(err)
	}
	other, err := p.beside()
	if err != nil {
		t.Fatal(err)
	}
	busyTimeout = 0
	if err := Write(path, writes("today")); !errors.Is(err, errAtWork) {
		t.Errorf("it gave %v", err)
	}
	busyTimeout = time.Minute
	written := make(chan error, 1)
	go func() { written <- Write(path, writes("today")) }()
	if err := errors.Join(os.Rename(other.Name(), path), other.Close(), <-written); err != nil {
		t.Error(err)
	}
	has(t, path, "today")
}

// What is to be done before a file is replaced is done when the new one is there, and keeps the old one by an error.
func TestBefore(t *testing.T) {
	path, beside := old(t)
	broken := errors.New("broken")
	f := File{Path: path, Before: func() error {
		now, err := os.ReadFile(path)
		next, nextErr := os.ReadFile(beside)
		if string(now) != "yesterday" || string(next) != "today" {
			t.Errorf("there is %q (%v), and beside it %q (%v)", now, err, next, nextErr)
		}
		return broken
	}}
	if err := f.Write(writes("today")); !errors.Is(err, broken) {
		t.Errorf("it gave %v", err)
	}
	has(t, path, "yesterday")
}

// A file that is replaced keeps its owner.
func TestOwner(t *testing.T) {
	testkit.NeedRoot(t)
	path, _ := old(t)
	if err := errors.Join(os.Chown(path, 12345, 54321), os.Chmod(path, 0o600), Write(path, writes("today"))); err != nil {
		t.Fatal(err)
	}
	has(t, path, "today")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if stat := info.Sys().(*syscall.Stat_t); stat.Uid != 12345 || stat.Gid != 54321 || info.Mode().Perm() != 0o600 {
		t.Errorf("it is %d's and %d's, with %v", stat.Uid, stat.Gid, info.Mode())
	}
}

// A file that is mounted by itself is written over, when all of the new one is known.
func TestMountedFile(t *testing.T) {
	path, _ := old(t)
	inside, _ := old(t)
	mount(t, inside, path, "", unix.MS_BIND)
	full := errors.New("no space left")
	if err := Write(path, func(io.Writer) error { return full }); !errors.Is(err, full) {
		t.Errorf("it gave %v", err)
	}
	has(t, inside, "yesterday")
	if err := errors.Join(Check(path), Write(path, writes("today"))); err != nil {
		t.Fatal(err)
	}
	has(t, inside, "today")
	has(t, path, "today")
}

// So is one in a folder that takes no other; a new one is refused there.
func TestFolderThatTakesNone(t *testing.T) {
	folder := t.TempDir()
	mount(t, "outfile-test", folder, "tmpfs", 0)
	path := filepath.Join(folder, "today.json")
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	inside, _ := old(t)
	mount(t, inside, path, "", unix.MS_BIND)
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	full := errors.New("no space left")
	if err := Write(path, func(w io.Writer) error { return errors.Join(writes("half of tod")(w), full) }); !errors.Is(err, full) {
		t.Errorf("it gave %v", err)
	}
	has(t, path, "yesterday")
	if err := errors.Join(Check(path), Write(path, writes("today"))); err != nil {
		t.Fatal(err)
	}
	has(t, inside, "today")
	other := filepath.Join(folder, "other.json")
	for _, err := range []error{Check(other), Write(other, writes("x"))} {
		if !errors.Is(err, syscall.EROFS) || !strings.Contains(err.Error(), other) {
			t.Errorf("a new file there gave %v", err)
		}
	}
}
