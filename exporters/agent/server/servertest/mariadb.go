package servertest

import (
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/tests/testkit"
)

// MariaDB is a running MariaDB server that a test owns.
type MariaDB struct {
	Dir  string
	Port int
	PID  int
}

// StartMariaDB initialises and starts a server with the account root, without a password,
// and stops it when the test ends.
func StartMariaDB(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, nil, nil, args...)
}

// StartMariaDBOn is StartMariaDB with something in its working directory, which prepare puts there: a file system for its log, for
// example.
func StartMariaDBOn(t testing.TB, prepare func(dir string, who *syscall.Credential), args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, nil, prepare, args...)
}

// StartMariaDBApart is StartMariaDB with InnoDB's files in two folders beside the data directory, innodb/data and
// innodb/logs, as Vitess has them.
func StartMariaDBApart(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, []string{"innodb/data", "innodb/logs"}, nil, append([]string{"--innodb-data-home-dir=../innodb/data", "--innodb-log-group-home-dir=../innodb/logs"}, args...)...)
}

// startMariaDB starts a server with further folders, which options of InnoDB's are for.
func startMariaDB(t testing.TB, folders []string, prepare func(dir string, who *syscall.Credential), args ...string) *MariaDB {
	t.Helper()
	testkit.NeedRoot(t)
	who := owner(t)
	m := &MariaDB{Dir: workDir(t, "my", who), Port: freePort(t)}
	for _, folder := range folders {
		if err := os.MkdirAll(filepath.Join(m.Dir, folder), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(m.Dir, folder), int(who.Uid), int(who.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	data := filepath.Join(m.Dir, "data")
	if prepare != nil {
		prepare(m.Dir, who)
	}
	installing := append([]string{"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db"}, innodbOptions(args)...)
	install := exec.Command(testkit.Tool(t, "mariadb-install-db"), installing...)
	install.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	install.Dir = m.Dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	args = append([]string{"--no-defaults", "--datadir=" + data, "--socket=" + m.Socket(), "--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", m.Port), "--pid-file=" + filepath.Join(m.Dir, "pid"), "--max-connections=300"}, args...)
	cmd := exec.Command(testkit.Tool(t, "mariadbd"), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: who}
	cmd.Dir = m.Dir
	start(t, cmd, filepath.Join(m.Dir, "log"), syscall.SIGTERM)
	m.PID = cmd.Process.Pid
	db := m.Open(t, nil)
	testkit.Eventually(t, testkit.Patience, db.Ping)
	return m
}

// innodbOptions are those for where InnoDB's files are, which count when they are made, too.
func innodbOptions(args []string) (options []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "--innodb-") {
			options = append(options, a)
		}
	}
	return options
}

// Socket is the path of its local socket.
func (m *MariaDB) Socket() string { return filepath.Join(m.Dir, "s") }

// Client has MariaDB's own client run a script on one connection, over TCP unless its arguments have another one.
func (m *MariaDB) Client(t testing.TB, script string, args ...string) {
	t.Helper()
	cmd := exec.Command(testkit.Tool(t, "mariadb"), append([]string{"--no-defaults", "--user=root", "--host=127.0.0.1", fmt.Sprintf("--port=%d", m.Port)}, args...)...)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("mariadb %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// Open returns a pool of connections that ends with the test. change, if not nil, may change
// how they are made.
func (m *MariaDB) Open(t testing.TB, change func(*mysql.Config)) *sql.DB {
	t.Helper()
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName = "root", "tcp", fmt.Sprintf("127.0.0.1:%d", m.Port), "mysql"
	if change != nil {
		change(c)
	}
	connector, err := mysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() })
	return db
}
