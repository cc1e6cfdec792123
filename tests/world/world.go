// Package world runs a package's tests in namespaces of their own: processes, mounts, network, cgroups and host name.
//
// A test then sees only what it started, and nothing else that runs on the machine: no other database, lab or test run.
// The end of the tests ends all that they started, also when they are killed. Their /var/tmp and folder of temporary
// files are their own, and are removed with them. Loop devices, kernel modules, sysctls and the BPF programs that are
// attached remain the machine's.
package world

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// stage is the variable that names the stage of a copy of the test binary.
const stage = "PLUMBLINE_TEST_WORLD"

// folder is the variable that names the tests' own folder, on the disk of /var/tmp.
const folder = "PLUMBLINE_TEST_WORLD_FOLDER"

// The stages, each a child of the one before. A user of a debugger can set the variable to "off".
const (
	first = "init"  // the namespaces' first process: it prepares them and reaps what loses its parent
	inner = "tests" // the tests
	off   = "off"
)

// namespaces are those that tests get of their own.
const namespaces = unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// Main is a package's TestMain: it runs the tests within namespaces of their own and exits with their code. Without
// root they run as they are, and those that need root are skipped as ever.
func Main(m *testing.M) { os.Exit(Run(m)) }

// Run is Main for a TestMain that has more to do. It returns the tests' exit code in each process.
func Run(m *testing.M) int {
	switch os.Getenv(stage) {
	case inner, off:
		return m.Run()
	case first:
		return report(runFirst())
	}
	if os.Geteuid() != 0 {
		return m.Run()
	}
	return report(runOutside())
}

// Inside reports whether this process runs the tests, and is not one of the processes around them.
func Inside() bool {
	switch os.Getenv(stage) {
	case inner, off:
		return true
	case first:
		return false
	}
	return os.Geteuid() != 0
}

func report(code int, err error) int {
	if err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
		return 1
	}
	return code
}

// runOutside starts the namespaces' first process and waits for it. Its end, however it comes, ends the namespaces.
func runOutside() (int, error) {
	// The kernel sends Pdeathsig when the thread that started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := seen(); err != nil {
		return 0, err
	}
	// A run that is stopped by Ctrl-C leaves nothing.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	own, err := os.MkdirTemp("/var/tmp", "plumbline-test-")
	if err != nil {
		return 0, err
	}
	defer remove(own)
	cmd := copyOf(first)
	cmd.Env = append(cmd.Env, folder+"="+own)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	go func() {
		for range signals {
			_ = cmd.Process.Kill() // it may have ended
		}
	}()
	err = cmd.Wait()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exit.ExitCode(), nil
	}
	return 0, err
}

// seen returns an error if the tests' own /var/tmp would hide the checkout.
func seen() error {
	at, err := os.Getwd()
	if err == nil && strings.HasPrefix(at, "/var/tmp/") {
		return fmt.Errorf("the tests run in %s, and have a /var/tmp of their own, which hides it: move the checkout elsewhere", at)
	}
	return nil // a folder that is not known is not the checkout's
}

// copyOf is this program again, with its arguments, as the given stage.
func copyOf(s string) *exec.Cmd {
	// By its own path, as that gives the process its name.
	program, err := os.Executable()
	if err != nil {
		program = "/proc/self/exe"
	}
	cmd := exec.Command(program, os.Args[1:]...)
	cmd.Env = append(os.Environ(), stage+"="+s)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// runFirst prepares the namespaces, starts the tests and reaps every process that ends until the tests do.
func runFirst() (int, error) {
	if err := prepare(); err != nil {
		return 0, err
	}
	cmd := copyOf(inner)
	cmd.Env = append(cmd.Env, "TMPDIR="+temporary)
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return 0, fmt.Errorf("waiting for the tests: %w", err)
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus(), nil
		case pid == cmd.Process.Pid:
			return 0, fmt.Errorf("the tests were ended by the signal %v", status.Signal())
		}
	}
}

// temporary is the tests' folder of temporary files, within their own /var/tmp. Its short name leaves room for the
// paths of Unix sockets.
const temporary = "/var/tmp/t"

// prepare makes mounts private, gives the namespaces their own processes and /var/tmp, and turns loopback on.
func prepare() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	// Agents find processes by their names: only the tests' has the test binary's.
	if err := os.WriteFile("/proc/self/comm", []byte("init"), 0); err != nil {
		return err
	}
	own := os.Getenv(folder)
	if err := unix.Mount(own, "/var/tmp", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting %s at /var/tmp: %w", own, err)
	}
	for _, path := range []string{"/var/tmp", temporary} {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return err
		}
		// As every system has them: users other than root need them, too, and MkdirAll minds the umask.
		if err := os.Chmod(path, 0o777|os.ModeSticky); err != nil {
			return err
		}
	}
	return loopbackUp()
}

func loopbackUp() error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("turning loopback on: %w", err)
	}
	defer unix.Close(socket)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("turning loopback on: %w", err)
	}
	return nil
}
