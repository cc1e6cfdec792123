package servertest

import (
	"errors"
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
	m.initialise(t, common)
	m.moveLog(t, "#innodb_redo", args)
	args = append(append(common, "--socket=/run/s", "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.Port), "--pid-file=/run/pid",
		"--mysqlx-bind-address=127.0.0.1", fmt.Sprintf("--mysqlx-port=%d", m.XPort), "--mysqlx-socket=/run/x"), args...)
	cmd := m.command(t, "mysqld", args...)
	start(t, cmd, filepath.Join(m.Dir, "log"), syscall.SIGKILL) // an orderly end takes seconds, for data that is thrown away
	m.PID = cmd.Process.Pid
	testkit.Eventually(t, testkit.DefaultTimeout, m.Open(t, nil).Ping)
	return m
}

// initialise makes the data folder. The first one is kept with the server's root, where Debian's package has it: to initialise one takes
// three seconds, to copy one a tenth of a second.
func (m *MySQL) initialise(t testing.TB, common []string) {
	t.Helper()
	kept, data := filepath.Join(originOf(t, "mysql"), "var/lib/mysql"), filepath.Join(m.Dir, "data")
	if _, err := os.Stat(kept); err == nil {
		run(t, "cp", "--archive", kept, data)
		return
	}
	if out, err := m.command(t, "mysqld", append(slices.Clone(common), "--initialize-insecure")...).CombinedOutput(); err != nil {
		t.Fatalf("mysqld --initialize-insecure: %v\n%s", err, out)
	}
	// Each server gives itself an identity.
	if err := errors.Join(os.Remove(filepath.Join(data, "auto.cnf")), os.MkdirAll(filepath.Dir(kept), 0o755)); err != nil {
		t.Fatal(err)
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(kept), "")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(unfinished)
	run(t, "cp", "--archive", data, unfinished)
	// Of two tests at once, one keeps its own.
	if err := os.Rename(filepath.Join(unfinished, "data"), kept); err != nil && !errors.Is(err, os.ErrExist) {
		t.Fatal(err)
	}
}

// Client has MySQL's own client run a script on one connection, over TCP or the local socket. The client's own commands may be in the script.
func (m *MySQL) Client(t testing.TB, local bool, script string, args ...string) {
	t.Helper()
	m.client(t, "mysql", local, script, append([]string{"--commands"}, args...)...)
}

// originOf is the root of a server where tools/unstable keeps it.
func originOf(t testing.TB, name string) string {
	t.Helper()
	origin, err := filepath.EvalSymlinks(filepath.Join(testkit.Root(), "build", name))
	if err != nil {
		testkit.Skip(t, "needs another server: tools/unstable "+name)
	}
	return origin
}

// run runs a program of the machine's.
func run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(testkit.Tool(t, program), args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %q: %v: %s", program, args, err, out)
	}
}

// rootOf mounts the root of a server that tools/unstable got, read-only, below a folder of the server's own, which is /run in there.
func rootOf(t testing.TB, name, dir string) (root string) {
	t.Helper()
	from := originOf(t, name)
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
