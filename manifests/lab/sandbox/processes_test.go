package sandbox

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// headless names the folder of a lab to a copy of this program, which then loses its first
// thread in that lab's namespace and lives on.
const headless = "PLUMBLINE_TEST_HEADLESS"

// init runs on the process's first thread.
func init() {
	if os.Getenv(headless) != "" {
		runtime.LockOSThread()
	}
}

func TestMain(m *testing.M) {
	dir := os.Getenv(headless)
	if dir == "" {
		os.Exit(m.Run())
	}
	if err := Enter(dir); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	go func() {
		fmt.Println("entered")
		time.Sleep(time.Hour)
	}()
	_, _, _ = unix.Syscall(unix.SYS_EXIT, 0, 0, 0) // this thread alone
}

// A process whose first thread is gone still holds the namespace: it is found, held and ended.
// Taken for gone, it would unmount the volumes as it ends, and wait for ever for its own answer.
func TestHeadlessProcess(t *testing.T) {
	testkit.NeedRoot(t)
	if why, refused := Probe()["mount"]; refused {
		testkit.Skip(t, why)
	}
	dir := t.TempDir()
	cmd := Command(true, os.Args[0])
	cmd.Env = append(os.Environ(), headless+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	go func() { ended <- cmd.Wait() }()
	if err != nil || line != "entered\n" {
		t.Fatalf("the process prints %q, %v", line, err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		p, err := procfs.NewProc(cmd.Process.Pid)
		if err != nil {
			return err
		}
		if stat, err := p.Stat(); err != nil || stat.State != "Z" {
			return fmt.Errorf("state %q, %v; waiting for its first thread to be gone", stat.State, err)
		}
		return nil
	})
	pids, err := Processes(dir)
	if err != nil || !slices.Contains(pids, cmd.Process.Pid) {
		t.Fatalf("found %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	kept := namespaces{}
	defer kept.release()
	if kept.hold(cmd.Process.Pid); len(kept) != 1 {
		t.Errorf("%d namespaces held, want 1", len(kept))
	}
	if err := Kill(dir, testkit.DefaultTimeout); err != nil {
		t.Error(err)
	}
}

// A process is a lab's by the lab's folder, not by its path: in another mount namespace another lab has the same.
func TestProcessOfAnotherLab(t *testing.T) {
	testkit.NeedRoot(t)
	if why, refused := Probe()["mount"]; refused {
		testkit.Skip(t, why)
	}
	for _, c := range []struct {
		folder string
		own    bool
	}{{t.TempDir(), false}, {"", true}} {
		dir := t.TempDir()
		if c.own {
			c.folder = dir
		}
		cmd := exec.Command("unshare", "--mount", "sh", "-c", `mount --bind "$1" "$2" && echo mounted && exec sleep 1000`, "sh", c.folder, dir)
		cmd.Env = append(os.Environ(), Environment(dir))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "mounted\n" {
			t.Fatalf("the process prints %q, %v", line, err)
		}
		if pids, err := Processes(dir); err != nil || slices.Contains(pids, cmd.Process.Pid) != c.own {
			t.Errorf("own folder %v: found %v, %v, and the process is %d", c.own, pids, err, cmd.Process.Pid)
		}
	}
}
