package servertest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// MySQL is a running server of MySQL's own that a test owns. It runs in a root of its own, build/mysql, and sees Dir as /run.
type MySQL struct {
	MariaDB
	// XPort is where it takes connections of the X protocol, which it also does on the local socket XSocket.
	XPort int
}

// XSocket is the path of the local socket of the X protocol.
func (m *MySQL) XSocket() string { return filepath.Join(m.Dir, "x") }

// StartMySQL initialises and starts a server with the account root, without a password, and stops it when the test ends. It takes
// connections with TLS, as it does by default.
func StartMySQL(t testing.TB, args ...string) *MySQL {
	t.Helper()
	return StartMySQLOn(t, nil, args...)
}

// StartMySQLOn is StartMySQL with something in the folder that the server sees as /run, which prepare puts there: a file system for
// its log, for example.
func StartMySQLOn(t testing.TB, prepare func(run string, who *syscall.Credential), args ...string) *MySQL {
	t.Helper()
	m := &MySQL{MariaDB: *newMariaDB(t), XPort: freePort(t)}
	m.root = rootOf(t, "mysql", m.Dir)
	if prepare != nil {
		prepare(filepath.Join(m.root, "run"), m.who)
	}
	common := []string{"--no-defaults", "--datadir=/run/data", "--tmpdir=/run", "--secure-file-priv=NULL"}
	if out, err := m.command(t, "mysqld", slices.Concat(common, innodbOptions(args), []string{"--initialize-insecure"})...).CombinedOutput(); err != nil {
		t.Fatalf("mysqld --initialize-insecure: %v\n%s", err, out)
	}
	args = append(append(common, "--socket=/run/s", "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.Port), "--pid-file=/run/pid",
		"--mysqlx-bind-address=127.0.0.1", fmt.Sprintf("--mysqlx-port=%d", m.XPort), "--mysqlx-socket=/run/x"), args...)
	cmd := m.command(t, "mysqld", args...)
	start(t, cmd, filepath.Join(m.Dir, "log"), syscall.SIGTERM)
	m.PID = cmd.Process.Pid
	testkit.Eventually(t, testkit.Patience, m.Open(t, nil).Ping)
	return m
}

// Client has MySQL's own client run a script on one connection, over TCP or the local socket. The client's own commands may be in the script.
func (m *MySQL) Client(t testing.TB, local bool, script string, args ...string) {
	t.Helper()
	m.client(t, "mysql", local, script, append([]string{"--commands"}, args...)...)
}

// rootOf mounts the root of a server that tools/unstable got, read-only, below a folder of the server's own, which is /run in there.
func rootOf(t testing.TB, name, dir string) (root string) {
	t.Helper()
	from, err := filepath.EvalSymlinks(filepath.Join(testkit.Root(), "build", name))
	if err != nil {
		testkit.Skip(t, "needs another server: tools/unstable "+name)
	}
	root = filepath.Join(dir, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	mount(t, from, root, unix.MS_RDONLY)
	mount(t, dir, filepath.Join(root, "run"), 0)
	return root
}

// commandIn is a program in such a root, with a place for temporary files.
func commandIn(root string, who *syscall.Credential, program string, args ...string) *exec.Cmd {
	path := "/usr/bin/" + program
	if _, err := os.Stat(filepath.Join(root, path)); err != nil {
		path = "/usr/sbin/" + program
	}
	cmd := exec.Command(path, args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/run", "TMPDIR=/run"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who, Chroot: root}
	cmd.Dir = "/run"
	return cmd
}

// mount shows a folder in another place until the test ends.
func mount(t testing.TB, from, at string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(from, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mounting %s: %v", from, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Errorf("unmounting %s: %v", at, err)
		}
	})
	if err := unix.Mount("", at, "", unix.MS_BIND|unix.MS_REMOUNT|flags, ""); err != nil {
		t.Fatalf("mounting %s: %v", from, err)
	}
}
