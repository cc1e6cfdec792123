package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

const nobody = 65534

// The table of capabilities in docs/install/agent.md: what --check reports if an unprivileged user runs it with exactly these, and
// whether it may measure.
func TestCheckCapabilities(t *testing.T) {
	testkit.NeedBPF(t)
	agent := build(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "checked"}, nil)
	for _, c := range []struct {
		name         string
		capabilities []uintptr
		code         int
		want         string // a regular expression
		not          string
	}{
		{"none", nil, 1, `collector query +FAILED: .*lacks CAP_BPF and CAP_PERFMON`, "query: program"},
		{"BPF", []uintptr{unix.CAP_BPF}, 1, `collector query +FAILED: .*lacks CAP_PERFMON`, "query: program"},
		{"BPF PERFMON", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON}, 0,
			`query: server checked +ok +postgresql , PID(?s:.*)query: listeners +without: needs CAP_SYS_PTRACE(?s:.*)query: discovery +without: needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH`, "FAILED"},
		{"BPF PERFMON SYS_PTRACE", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE}, 0,
			`query: discovery +without: needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH`, "FAILED"},
		{"all that it needs", []uintptr{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}, 0,
			fmt.Sprintf(`query: server checked +ok +postgresql \d+, PID %d`, pg.PID), "without"},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.Command(agent, "--check", "--no-collector.replica", "--no-collector.volume")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
				AmbientCaps: c.capabilities,
			}
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d: %v", code, c.code, err)
			}
			if !regexp.MustCompile(c.want).Match(out) || strings.Contains(string(out), c.not) {
				t.Errorf("output does not match %q or has %q:\n%s", c.want, c.not, out)
			}
		})
	}
}

// The host's procfs may be mounted anywhere, but from a PID namespace of its own the agent cannot follow the processes
// that it shows, and reports so.
func TestCheckInPIDNamespace(t *testing.T) {
	testkit.NeedBPF(t)
	agent := build(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "outside"}, nil)
	host := filepath.Join(t.TempDir(), "proc")
	if err := os.Mkdir(host, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("/proc", host, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(host, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	check := []string{agent, "--check", "--path.procfs=" + host, "--no-collector.replica", "--no-collector.volume"}
	for _, c := range []struct {
		name  string
		below []string
		code  int
		want  string
	}{
		{"the host's", nil, 0, fmt.Sprintf(`query: server outside +ok +postgresql \d+, PID %d`, pg.PID)},
		{"its own", []string{testkit.Tool(t, "unshare"), "--pid", "--mount", "--fork", "--mount-proc"}, 1,
			`FAILED: .*another PID namespace .*hostPID: true`},
	} {
		t.Run(c.name, func(t *testing.T) {
			line := append(c.below, check...)
			cmd := exec.Command(line[0], line[1:]...)
			out, err := cmd.Output()
			if code := cmd.ProcessState.ExitCode(); code != c.code {
				t.Errorf("exit code %d, want %d: %v", code, c.code, err)
			}
			if !regexp.MustCompile(c.want).Match(out) {
				t.Errorf("output does not match %q:\n%s", c.want, out)
			}
		})
	}
}

// build builds the agent where nobody may run it.
func build(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "agent-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(dir, "agent")
	if out, err := exec.Command("go", "build", "-o", agent, ".").CombinedOutput(); err != nil {
		t.Fatalf("building the agent: %v\n%s", err, out)
	}
	return agent
}
