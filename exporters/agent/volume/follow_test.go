package volume

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

func calls() *untrusted.Calls { return untrusted.NewCalls(time.Minute, 8) }

// What is known follows the mounts, in any namespace, and the volumes' names.
func TestFollow(t *testing.T) {
	proc, sys := machine(t)
	file := filepath.Join(t.TempDir(), "volumes.yaml")
	name := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	name("volumes: [{volume: one, directory: /srv/local/one}, {volume: r3, mountpoint: /mnt/longhorn}]")
	n := NewNode(proc, sys, NewFile(file, "here"))
	if _, err := n.Known(); err == nil {
		t.Error("volumes are known that no scan has found")
	}
	n.Start(t.Context(), calls())
	known := func(want string) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			found, err := n.Known()
			var got []string
			for _, f := range found {
				got = append(got, f.Volume+"="+f.Disk)
			}
			if text := strings.Join(got, " "); err != nil || text != want {
				return fmt.Errorf("known are %q, %v; want %q", text, err, want)
			}
			return nil
		})
	}
	known("one=vda r3=loop2")
	table := filepath.Join(proc, "7", "mountinfo")
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	if err := os.WriteFile(table, []byte(lines[0]+lines[1]), 0o644); err != nil { // unmounted in the container
		t.Fatal(err)
	}
	known("one=vda")
	name("volumes: [{volume: renamed, directory: /srv/local/one}]")
	known("renamed=vda")
}

// A mount in the agent's own namespace is reported at once.
func TestWatchMounts(t *testing.T) {
	testkit.NeedRoot(t)
	ctx, cancel := context.WithCancel(context.Background())
	changed := make(chan struct{}, 1)
	ended := make(chan struct{})
	go func() {
		NewNode("/proc", "/sys").watchMounts(ctx, changed)
		close(ended)
	}()
	dir := t.TempDir()
	deadline := time.After(testkit.DefaultTimeout)
	// Until the watch has begun nothing receives the signal.
	for reported := false; !reported; {
		if err := errors.Join(unix.Mount("tmpfs", dir, "tmpfs", 0, ""), unix.Unmount(dir, 0)); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			reported = true
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			t.Fatal("a mount is not reported")
		}
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("the watch does not end")
	}
}

// While procfs hangs, what was known stays, is returned at once, and its age is reported.
func TestFollowHung(t *testing.T) {
	proc, sys := machine(t)
	n := NewNode(proc, sys, fixed{identities: []Identity{{Volume: "one", Directory: "/srv/local/one"}}})
	shortTimeout := untrusted.NewCalls(50*time.Millisecond, 8)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		n.refresh(shortTimeout, true)
		found, err := n.Known()
		if len(found) != 1 {
			return fmt.Errorf("known are %v, %v", found, err)
		}
		return nil
	})
	hung, release := untrustedtest.HungMount(t)
	table := filepath.Join(proc, "1", "mountinfo")
	if err := errors.Join(os.Remove(table), os.Symlink(filepath.Join(hung, "mountinfo"), table)); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		n.refresh(shortTimeout, true)
	}
	if found, err := n.Known(); len(found) != 1 || err != nil || shortTimeout.Hanging() != 1 {
		t.Errorf("known are %v, %v; %d calls hang", found, err, shortTimeout.Hanging())
	}
	old := *n.known.Load()
	old.at = old.at.Add(-2 * staleAfter)
	n.known.Store(&old)
	if found, err := n.Known(); len(found) != 1 || err == nil {
		t.Errorf("old knowledge is %v, %v", found, err)
	}
	release()
}

// A scan that is answered late, as all are on a slow node, is what is known then; one that began before another counts
// for nothing beside it.
func TestFollowLate(t *testing.T) {
	proc, sys := machine(t)
	table := filepath.Join(proc, "1", "mountinfo")
	text, err := os.ReadFile(table)
	if err == nil {
		err = errors.Join(os.Remove(table), unix.Mkfifo(table, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	n := NewNode(proc, sys, fixed{identities: []Identity{{Volume: "one", Directory: "/srv/local/one"}}})
	n.refresh(untrusted.NewCalls(20*time.Millisecond, 8), true)
	if found, err := n.Known(); len(found) != 0 || !errors.Is(err, untrusted.ErrUnanswered) {
		t.Errorf("at first known are %v, %v", found, err)
	}
	f, err := os.OpenFile(table, os.O_WRONLY, 0) // it is being read
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	f.Close()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if found, err := n.Known(); len(found) != 1 || err != nil {
			return fmt.Errorf("known are %v, %v", found, err)
		}
		return nil
	})
	known := n.known.Load()
	n.learn(&knowledge{at: known.at.Add(-time.Second)})
	if n.known.Load() != known {
		t.Error("a scan that began before has replaced the latest")
	}
	later := &knowledge{at: known.at.Add(time.Second)}
	n.learn(later)
	if n.known.Load() != later {
		t.Error("a later scan has not replaced the one before")
	}
}

// Mounts in another user namespace name no volumes: any user makes such a one.
func TestForeignUserNamespace(t *testing.T) {
	for users, want := range map[string]string{"user:[1]": "loop2", "user:[2]": ""} {
		proc, sys := machine(t)
		if err := errors.Join(os.Symlink("user:[1]", filepath.Join(proc, "1", "ns", "user")), os.Symlink(users, filepath.Join(proc, "7", "ns", "user"))); err != nil {
			t.Fatal(err)
		}
		found, err := NewNode(proc, sys, fixed{identities: []Identity{{Volume: "r3", Mountpoint: "/mnt/longhorn"}}}).Find()
		got := ""
		if len(found) > 0 {
			got = found[0].Disk
		}
		if err != nil || got != want {
			t.Errorf("a mount in %s is on %q, %v; want %q", users, got, err, want)
		}
	}
}

// A mount table without end is refused, and needs little memory.
func TestHugeTable(t *testing.T) {
	proc, _ := machine(t)
	table := filepath.Join(proc, "7", "mountinfo")
	if err := os.Truncate(table, 1<<30); err != nil { // zeros without a line's end
		t.Fatal(err)
	}
	if _, err := PlaceOf(proc, 7, "/data"); err == nil {
		t.Error("a table of 1 GiB is taken")
	}
	line := "34 32 7:1 / /mnt/" + strings.Repeat("x", 1000) + " rw - ext4 /dev/loop1 rw\n"
	if err := os.WriteFile(table, []byte(strings.Repeat(line, maxTable/len(line)+1)), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := PlaceOf(proc, 7, "/data"); !errors.Is(err, untrusted.ErrTooLong) {
		t.Errorf("a table above the limit gives %v", err)
	}
}
