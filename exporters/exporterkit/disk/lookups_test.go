package disk

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A file system that hangs blocks no caller, is queried only once, and is known again when it answers.
func TestLookupThatHangs(t *testing.T) {
	var l lookups
	gate := make(chan struct{})
	calls := make(chan string, 10)
	hangs := func() (string, error) { calls <- "x"; <-gate; return "sda", nil }
	if _, err := l.get("hangs", hangs); !errors.Is(err, ErrPending) {
		t.Fatalf("the first get returns %v", err)
	}
	<-calls
	l.mu.Lock()
	l.known["hangs"].requested = time.Now().Add(-2 * timeout)
	l.mu.Unlock()
	for range 5 {
		if _, err := l.get("hangs", hangs); !errors.Is(err, ErrHangs) {
			t.Fatalf("it hangs, and gives %v", err)
		}
		if _, err := l.wait("hangs", hangs); !errors.Is(err, ErrHangs) {
			t.Fatalf("it hangs, and gives %v", err)
		}
	}
	if len(calls) > 0 {
		t.Error("looked up again while it hangs")
	}
	if disk, err := l.wait("fine", func() (string, error) { return "sdb", nil }); disk != "sdb" || err != nil {
		t.Errorf("another path gives %q, %v", disk, err)
	}
	close(gate)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if disk, err := l.get("hangs", hangs); disk != "sda" || err != nil {
			return fmt.Errorf("after it answered: %q, %w", disk, err)
		}
		return nil
	})
	// What is known is kept while a later lookup hangs.
	l.mu.Lock()
	l.known["hangs"].ended, l.known["hangs"].requested = time.Time{}, time.Time{}
	l.mu.Unlock()
	gate = make(chan struct{})
	defer close(gate)
	if disk, err := l.get("hangs", hangs); disk != "sda" || err != nil {
		t.Errorf("while it is looked up again: %q, %v", disk, err)
	}
}

// However many paths hang, the threads they hold are bounded.
func TestLookupsAreBounded(t *testing.T) {
	var l lookups
	gate := make(chan struct{})
	defer close(gate)
	for i := range 3 * maxRemembered / 2 {
		_, _ = l.get(fmt.Sprint(i), func() (string, error) { <-gate; return "", nil })
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.underWay != maxUnderWay || len(l.known) > maxRemembered || len(l.queue) > maxRemembered {
		t.Errorf("%d lookups under way, %d wait, %d paths remembered", l.underWay, len(l.queue), len(l.known))
	}
}

// Many paths that answer are all known soon, though only some are looked up at a time.
func TestManyLookups(t *testing.T) {
	var l lookups
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		var missing error
		for i := range 100 * maxUnderWay {
			if result, err := l.get(fmt.Sprint(i), func() (string, error) { return fmt.Sprint(i), nil }); err != nil || result != fmt.Sprint(i) {
				missing = fmt.Errorf("path %d: %q, %w", i, result, err)
			}
		}
		return missing
	})
}

// Links are followed within the root, and what is not there is an error that can be printed.
func TestDeviceOfLink(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev/vg"), 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.NeedRoot(t)
	if err := unix.Mknod(filepath.Join(root, "dev/dm-3"), unix.S_IFBLK|0o600, int(unix.Mkdev(253, 3))); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{"dev/vg/relative": "../dm-3", "dev/vg/absolute": "/dev/dm-3", "dev/vg/loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	f := &Finder{RootFS: root}
	for path, want := range map[string]string{"/dev/vg/relative": "dm-3", "/dev/vg/absolute": "dm-3", "/dev/vg/loop": "", "/dev/\xff\n": "", "": "", "/../../../etc/hostname": ""} {
		name, err := f.deviceAt(path)
		if name != want || (err == nil) != (want != "") || err != nil && !utf8.ValidString(err.Error()) {
			t.Errorf("%q is %q (%v), want %q", path, name, err, want)
		}
	}
}
