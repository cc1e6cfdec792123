package sandbox

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Nothing that is not a lab's is ever removed.
func TestRemoveRefusesOtherFolders(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "precious")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Remove(dir); err == nil || !strings.Contains(err.Error(), "holds no lab") {
		t.Errorf("removing another folder gave %v", err)
	}
	if err := Vacant(dir); err == nil {
		t.Error("a folder with somebody's file counts as vacant")
	}
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

// loopFolder makes a folder for files that loop devices are attached to, which the test's end removes.
func loopFolder(t *testing.T) string {
	t.Helper()
	testkit.NeedRoot(t)
	if _, refused := Probe()["loop"]; refused {
		testkit.Skip(t, Probe()["loop"])
	}
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-loop")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// A volume is mounted, keeps its data over a second mount, and its loop device goes with it;
// one that was left behind is found by its mark and detached.
func TestVolume(t *testing.T) {
	dir := loopFolder(t)
	t.Cleanup(func() {
		_ = unmountBelow(dir)
		_ = DetachLoops(dir, testkit.DefaultTimeout)
	})
	file, at := filepath.Join(dir, "volume"), filepath.Join(dir, "mounted")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(file, 64<<20); err != nil {
		t.Fatal(err)
	}
	for round := range 2 {
		m, err := Mount(dir, file, at, "nobody")
		if err != nil {
			t.Fatal(err)
		}
		kept := filepath.Join(at, "kept")
		if _, err := os.Stat(kept); (err == nil) != (round == 1) {
			t.Errorf("round %d: file of the first round: %v", round, err)
		}
		if err := os.WriteFile(kept, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if found, err := loops(dir); err != nil || len(found) != 1 || found[0] != m.Device() {
			t.Errorf("round %d: loop devices by their mark: %v %v, want %s", round, found, err, m.Device())
		}
		if err := m.Unmount(); err != nil {
			t.Fatal(err)
		}
		testkit.Eventually(t, testkit.DefaultTimeout, func() error { return noLoops(dir) })
	}
	// A holder that was killed leaves its mount; the next one takes it away and finds the data.
	for range 2 {
		if _, err := Mount(dir, file, at, "nobody"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(at, "kept")); err != nil {
		t.Error(err)
	}
	if err := unmountBelow(dir); err != nil {
		t.Fatal(err)
	}
	if err := DetachLoops(dir, testkit.DefaultTimeout); err != nil {
		t.Error(err)
	}
}

// A lab's device is known by the lab's folder, not by its path: in another mount namespace another lab has the same.
func TestLoopOfAnotherLab(t *testing.T) {
	top := loopFolder(t)
	dir, moved := filepath.Join(top, "lab"), filepath.Join(top, "moved")
	file := filepath.Join(dir, "volume")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, make([]byte, 1<<20), 0o600)); err != nil {
		t.Fatal(err)
	}
	device, err := AttachLoop(dir, file)
	if err != nil {
		t.Fatal(err)
	}
	defer device.Close()
	if err := errors.Join(os.Rename(dir, moved), os.Mkdir(dir, 0o700), noLoops(dir)); err != nil {
		t.Errorf("of another lab at %s: %v", dir, err)
	}
	if found, err := loops(moved); err != nil || len(found) != 1 || found[0] != device.Name() {
		t.Errorf("of the lab itself: %v %v, want %s", found, err, device.Name())
	}
}

// A device that cannot be read is not taken for a new one, on which a file system would be made.
func TestUnreadableIsNotBlank(t *testing.T) {
	file := filepath.Join(t.TempDir(), "device")
	for content, want := range map[string]bool{strings.Repeat("\x00", 1<<17): true, strings.Repeat("\x00", 1<<10) + "x" + strings.Repeat("\x00", 1<<17): false} {
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if blank, err := isBlank(file); err != nil || blank != want {
			t.Errorf("blank %v, %v; want %v", blank, err, want)
		}
	}
	if err := os.Truncate(file, 512); err != nil {
		t.Fatal(err)
	}
	if blank, err := isBlank(file); err == nil || blank {
		t.Errorf("a device that ends too soon: blank %v, %v", blank, err)
	}
}

func noLoops(dir string) error {
	left, err := loops(dir)
	if err == nil && len(left) > 0 {
		err = &os.PathError{Op: "detach", Path: left[0], Err: os.ErrExist}
	}
	return err
}
