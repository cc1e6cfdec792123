// Package testkit holds what the tests of every part share: what a test needs of the
// machine, and waiting for a condition instead of sleeping.
package testkit

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"
)

// Skip skips the test with a reason; in CI (CI=true) a skipped test is a failure, because
// there nobody reads the reason.
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
	if os.Geteuid() != 0 {
		Skip(t, "needs root")
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

// Tool returns the path of a third-party program: from the checkout's build/bin, else from
// PATH and the usual PostgreSQL and system folders. It skips if the program is in none.
func Tool(t testing.TB, name string) string {
	t.Helper()
	candidates := []string{filepath.Join(Root(), "build", "bin", name)}
	if found, err := exec.LookPath(name); err == nil {
		candidates = append(candidates, found)
	}
	versions, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	candidates = append(candidates, versions...)
	candidates = append(candidates, "/usr/sbin/"+name)
	for _, c := range candidates {
		if info, err := os.Stat(c); err == nil && !info.IsDir() {
			return c
		}
	}
	Skip(t, "needs "+name+"; `make tools` builds or installs it")
	return ""
}

// Eventually calls f until it returns nil, and fails with its last error at the deadline.
func Eventually(t testing.TB, deadline time.Duration, f func() error) {
	t.Helper()
	end := time.Now().Add(deadline)
	pause := 5 * time.Millisecond
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("not reached within %s: %v", deadline, err)
		}
		time.Sleep(pause)
		pause = min(2*pause, 250*time.Millisecond)
	}
}
