package damage

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/tests/testkit"
)

// sleeper starts a process that does nothing.
func sleeper(t *testing.T, environment ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Env = append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// A halved process is seen stopped and seen not stopped, and runs after Mend.
func TestHalve(t *testing.T) {
	cmd := sleeper(t)
	mend := Halve(t.Context(), cmd.Process.Pid)
	for _, want := range []string{"T", "S", "T"} {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if s := testkit.ProcessState(t, cmd.Process.Pid); s != want {
				return fmt.Errorf("state %s, want %s", s, want)
			}
			return nil
		})
	}
	if err := mend(); err != nil {
		t.Fatal(err)
	}
	if s := testkit.ProcessState(t, cmd.Process.Pid); s != "S" && s != "R" {
		t.Errorf("mended it is in state %s", s)
	}
}

// throttle limits a sleeper, or skips where the machine has no cgroup to do so.
func throttle(t *testing.T, name string) (pid int, before string, mend Mend) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.Skip(t, "limiting what a process writes needs root")
	}
	cmd := sleeper(t)
	_, v1 := root()
	before, err := groupOf(cmd.Process.Pid, v1)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	mend, err = Throttle(name, cmd.Process.Pid, t.TempDir(), WritesPerSecond(30))
	if err != nil {
		if errors.Is(err, syscall.ENODEV) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS) {
			testkit.Skip(t, "no disk or no cgroup to limit: "+err.Error())
		}
		t.Fatal(err)
	}
	return cmd.Process.Pid, before, mend
}

func at(t *testing.T, pid int) string {
	t.Helper()
	_, v1 := root()
	group, err := groupOf(pid, v1)
	if err != nil {
		t.Fatal(err)
	}
	return group
}

// A limited process is in the cgroup, and back in its own, with the cgroup gone, after Mend.
func TestThrottle(t *testing.T) {
	name := fmt.Sprintf("plumbline-test-%d", os.Getpid())
	pid, before, mend := throttle(t, name)
	if now := at(t, pid); filepath.Base(now) != name {
		t.Errorf("it is in cgroup %s, want %s", now, name)
	}
	if err := mend(); err != nil {
		t.Fatal(err)
	}
	folder, _ := root()
	if _, err := os.Stat(filepath.Join(folder, name)); at(t, pid) != before || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("mended it is in cgroup %s, want %s; the limit's own: %v", at(t, pid), before, err)
	}
}

// What a killed one has left is taken away without it.
func TestUnthrottle(t *testing.T) {
	name := fmt.Sprintf("plumbline-test-%d", os.Getpid())
	pid, _, _ := throttle(t, name)
	if err := Unthrottle(name, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if now := at(t, pid); strings.Contains(now, name) {
		t.Errorf("it is still in cgroup %s", now)
	}
	if err := Unthrottle(name, t.TempDir()); err != nil {
		t.Errorf("where there is nothing to take away: %v", err)
	}
}

// Heal ends what a killed break has started, and its record; and only that.
func TestHealAfterCrash(t *testing.T) {
	dir := t.TempDir()
	left := sleeper(t, mark(dir)...)
	other := sleeper(t, sandbox.Environment(dir))
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "classes"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeRecord(dir, record{Kind: "cpu", Breaker: gone.Process.Pid, BreakerStarted: 1}); err != nil {
		t.Fatal(err)
	}
	what, err := Heal(t.Context(), dir)
	if err != nil || what != "cpu" {
		t.Fatalf("healed %q, %v", what, err)
	}
	if err := left.Wait(); err == nil {
		t.Error("what the break had started ended well; want killed")
	}
	if s := testkit.ProcessState(t, other.Process.Pid); s == "Z" {
		t.Error("a process of the lab that no break had started was ended, too")
	}
	if what, err := Heal(t.Context(), dir); what != "" || err != nil {
		t.Errorf("healed again: %q, %v", what, err)
	}
}

// How slow a link or disk becomes is whole milliseconds, or an error that names the variable.
func TestMilliseconds(t *testing.T) {
	for value, want := range map[string]int64{"": 10, "1ms": 1, "20ms": 20, "1.5s": 1500} {
		t.Setenv(diskDelay, value)
		if got, err := milliseconds(diskDelay); err != nil || got != want {
			t.Errorf("%q: %d, %v, want %d", value, got, err, want)
		}
	}
	for _, value := range []string{"20", "-5ms", "100us", "1.5ms", "soon; reboot"} {
		t.Setenv(diskDelay, value)
		if got, err := milliseconds(diskDelay); err == nil || !strings.Contains(err.Error(), diskDelay) {
			t.Errorf("%q: %d, %v; want an error that names the variable", value, got, err)
		}
	}
}

// A lab is not broken twice, nor in a way or in a class that there is not.
func TestRefused(t *testing.T) {
	lab := &config.Lab{Dir: t.TempDir()}
	lab.Classes = []*config.Class{{Name: "local", Lab: lab}}
	for _, c := range []struct{ kind, class, want string }{
		{"flood", "", "there are replica, disk, cpu, lock, network, stall"},
		{"replica", "", "needs another class: LAB_CLASSES='local longhorn-r3'"},
		{"network", "", "needs another class: LAB_CLASSES='local nvme-r3'"},
		{"stall", "local", "class local has nothing"},
	} {
		if _, err := Begin(context.Background(), lab, c.kind, c.class); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("break %s of %q gave %v; want %q", c.kind, c.class, err, c.want)
		}
	}
	started, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(record{Kind: "disk", Breaker: os.Getpid(), BreakerStarted: started})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(recordPath(lab.Dir), text, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Begin(t.Context(), lab, "cpu", ""); err == nil || !strings.Contains(err.Error(), "broken already (disk") {
		t.Errorf("a second break gave %v", err)
	}
}
