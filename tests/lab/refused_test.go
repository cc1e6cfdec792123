package lab

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What cannot work is refused in one line that explains what to do, and leaves nothing behind.
func TestRefused(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "plumbline-lab")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, takenPort, _ := net.SplitHostPort(taken.Addr().String())
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "somebody's"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join("/var/tmp", "plumbline-refused")
	for name, c := range map[string]struct {
		env    []string
		nobody bool
		want   string
	}{
		"unknown class":   {env: []string{"LAB_CLASSES=local gold"}, want: `unknown class "gold" in LAB_CLASSES; there are: ceph-rbd-r1 ceph-rbd-r3 gluster-r3 local longhorn-r1 longhorn-r3`},
		"no class":        {env: []string{"LAB_CLASSES= "}, want: "LAB_CLASSES is empty"},
		"class twice":     {env: []string{"LAB_CLASSES=local local"}, want: `class "local" is named twice`},
		"port taken":      {env: []string{"LAB_PORT_BASE=" + takenPort}, want: "set LAB_PORT_BASE to another range"},
		"folder not ours": {env: []string{"LAB_DIR=" + full}, want: "is not empty and not a lab's"},
		"path too long":   {env: []string{"LAB_PORT_BASE=28490", "LAB_DIR=/var/tmp/" + strings.Repeat("x", 90)}, want: "is too long"},
		"not root":        {nobody: true, want: "run it as root"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := command("up")
			cmd.Env = append(cmd.Env, append([]string{"LAB_DIR=" + fresh}, c.env...)...)
			if c.nobody {
				program := filepath.Join(t.TempDir(), "plumbline-lab")
				copyExecutable(t, cmd.Path, program)
				cmd.Path, cmd.Dir = program, "/"
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
			}
			out, err := cmd.CombinedOutput()
			t.Cleanup(func() { _ = sandbox.Remove(fresh) })
			if err == nil || !strings.Contains(string(out), c.want) {
				t.Errorf("want a refusal with %q, have %v\n%s", c.want, err, out)
			}
			if _, err := os.Stat(fresh); !os.IsNotExist(err) {
				t.Errorf("%s was left behind", fresh)
			}
		})
	}
	if _, err := os.Stat(filepath.Join(full, "somebody's")); err != nil {
		t.Errorf("somebody else's file: %v", err)
	}
}

// copyExecutable puts a program where an unprivileged user can run it.
func copyExecutable(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
	for d := filepath.Dir(to); d != "/tmp" && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
