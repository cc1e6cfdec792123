// Package testkit holds what the tests of every part share: what a test needs of the
// machine, and waiting for a condition instead of sleeping.
package testkit

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plumbline/plumbline/tests/freeport"
)

// Skip skips the test with a reason; in CI (CI=true) a skipped test is a failure, because there the reason is not read.
func Skip(t testing.TB, reason string) {
	t.Helper()
	if os.Getenv("CI") == "true" {
		t.Fatalf("would be skipped, which CI does not allow: %s", reason)
	}
	t.Skip(reason)
}

// NeedRoot skips unless the test runs as root.
func NeedRoot(t testing.TB) {
	t.Helper()
	quick(t)
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
	}
}

// quick skips a test of `make check`, which is for what needs no other program and no root.
func quick(t testing.TB) {
	t.Helper()
	Long(t, "needs root or another program")
}

// Long skips a test in `make check`, for what takes long there: what it does.
func Long(t testing.TB, what string) {
	t.Helper()
	if testing.Short() {
		t.Skip("not in make check: it " + what)
	}
}

// NeedBPF skips unless the test runs as root on a kernel with BTF.
func NeedBPF(t testing.TB) {
	t.Helper()
	NeedRoot(t)
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		Skip(t, "needs a kernel with BTF: "+err.Error())
	}
}

// Root returns the root of the checkout.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "..", "..")
}

// Tool returns the path of a third-party program, see Find. It skips without it.
func Tool(t testing.TB, name string) string {
	t.Helper()
	if name != "go" {
		quick(t)
	}
	path, err := Find(name)
	if err != nil {
		Skip(t, err.Error())
	}
	return path
}

// Find returns the path of a third-party program: from the checkout's build/bin, else from
// PATH and the usual PostgreSQL and system folders.
func Find(name string) (string, error) {
	candidates := []string{filepath.Join(Root(), "build", "bin", name)}
	if found, err := exec.LookPath(name); err == nil {
		candidates = append(candidates, found)
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	candidates = append(candidates, versions...)
	candidates = append(candidates, "/usr/sbin/"+name)
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && !info.IsDir() {
			return c, nil
		}
	}
	return "", fmt.Errorf("needs %s; `make build` builds or installs it", name)
}

// DefaultTimeout is how long to wait for what a machine does within seconds, and an emulator on a busy one within
// minutes.
const DefaultTimeout = 10 * time.Minute

// Await calls f until it returns nil, and returns its last error at the deadline.
func Await(deadline time.Duration, f func() error) error {
	end := time.Now().Add(deadline)
	pause := 5 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("not reached within %s: %w", deadline, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 250*time.Millisecond)
	}
}

// Eventually is Await for what the test cannot continue without.
func Eventually(t testing.TB, deadline time.Duration, f func() error) {
	t.Helper()
	if err := Await(deadline, f); err != nil {
		t.Fatal(err)
	}
}

// FreeAddress returns a loopback address for a server.
func FreeAddress(t testing.TB) string {
	t.Helper()
	address, err := freeport.Address()
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// ProcessState is a process's state as the kernel shows it, such as "Z".
func ProcessState(t testing.TB, pid int) string {
	t.Helper()
	p, err := procfs.NewProc(pid)
	if err != nil {
		t.Fatal(err)
	}
	stat, err := p.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return stat.State
}
