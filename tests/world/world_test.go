package world

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

func TestMain(m *testing.M) { Main(m) }

// A test sees its own processes only, and may listen where others of the machine do.
func TestSeesItselfOnly(t *testing.T) {
	testkit.NeedRoot(t)
	processes, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(processes) > 4 {
		t.Errorf("%d processes are seen: %v %v", len(processes), processes, err)
	}
	interfaces, err := net.Interfaces()
	if err != nil || len(interfaces) != 1 || interfaces[0].Flags&net.FlagUp == 0 {
		t.Errorf("interfaces: %v %v", interfaces, err)
	}
}

// What loses its parent is reaped: it stays no zombie.
func TestOrphansAreReaped(t *testing.T) {
	testkit.NeedRoot(t)
	out, err := exec.Command("sh", "-c", "sleep 0 & echo $!").Output()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(out))); err == nil {
			return fmt.Errorf("process %s is still there", out)
		}
		return nil
	})
}

// A loop device of a run that was killed is detached, and its file removed.
func TestLoopDeviceIsDetached(t *testing.T) {
	testkit.NeedRoot(t)
	dir := t.TempDir()
	name := filepath.Join(dir, "disk")
	if err := os.WriteFile(name, make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "--find", "--show", name).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	device := strings.TrimSpace(string(out))
	remove(dir)
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", dir, err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if out, err := exec.Command("losetup", device).CombinedOutput(); err == nil {
			return fmt.Errorf("%s is left: %s", device, out)
		}
		return nil
	})
}

// A checkout in /var/tmp, which the tests would not see, is an error that states what to do.
func TestCheckoutIsHidden(t *testing.T) {
	testkit.NeedRoot(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestSeesItselfOnly$")
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), stage+"=")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "move the checkout elsewhere") {
		t.Errorf("%v: %s", err, out)
	}
}

// left names a folder to a copy of this test, in which it leaves its child's mark.
const left = "PLUMBLINE_TEST_LEFT"

// lockedRun starts a copy of a test that locks a file in a grandchild, and returns once it has. held reports whether
// the file is locked.
func lockedRun(t *testing.T) (cmd *exec.Cmd, held func() bool) {
	t.Helper()
	testkit.NeedRoot(t)
	if name := os.Getenv(left); name != "" {
		exec.Command("flock", name, "sh", "-c", "sleep 1000").Run()
		t.SkipNow()
	}
	// Both runs see /tmp, and each has a /var/tmp of its own.
	dir, err := os.MkdirTemp("/tmp", "world-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	file := filepath.Join(dir, "lock")
	cmd = exec.Command("/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), stage+"=", left+"="+file)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	held = func() bool { return exec.Command("flock", "--nonblock", file, "true").Run() != nil }
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if !held() {
			return fmt.Errorf("nobody holds %s so far", file)
		}
		return nil
	})
	return cmd, held
}

// A run that is killed takes its world along: a lock that a grandchild holds is free.
func TestKilledRunLeavesNothing(t *testing.T) {
	cmd, held := lockedRun(t)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if held() {
			return errors.New("the file is still locked after the run was killed")
		}
		return nil
	})
}

// A run that is stopped removes its folder, too, before it ends.
func TestStoppedRunLeavesNoFolder(t *testing.T) {
	folders := func() int { all, _ := filepath.Glob("/var/tmp/plumbline-test-*"); return len(all) }
	before := folders()
	cmd, held := lockedRun(t)
	if n := folders(); n != before+1 {
		t.Fatalf("there are %d folders, and were %d before the run", n, before)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a run that was stopped has passed")
	}
	if n := folders(); n != before || held() {
		t.Errorf("%d folders are left, and were %d before; the file is locked: %v", n, before, held())
	}
}
