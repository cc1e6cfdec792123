package servertest

import (
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	who  *syscall.Credential
	// root is a root of its own that it runs in, where Dir is /run; "" is the machine's.
	root string
}

// StartMariaDB initialises and starts a server with the account root, without a password,
// and stops it when the test ends.
func StartMariaDB(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, newMariaDB(t), nil, args...)
}

// StartNewMariaDB is StartMariaDB for the newest version that Debian has, in a root of its own, build/mariadb.
func StartNewMariaDB(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, newestMariaDB(t), nil, args...)
}

// withoutTransfer is the script by which a member of a Galera cluster would get another's data. It transfers none: members begin
// with the same data.
const withoutTransfer = `#!/bin/sh
state=$(sed -n 's/^uuid: *//p' /run/data/grastate.dat):0
case "$*" in
*joiner*) echo ready 127.0.0.1:1 && echo "$state" ;;
*) while read -r line; do :; done && echo "done $state" ;;
esac
`

// StartGalera starts as many members of a Galera cluster, of the newest MariaDB that Debian has. They begin with the data of one
// that was a cluster alone.
func StartGalera(t testing.TB, n int) (members []*MariaDB) {
	t.Helper()
	first := startGalera(t, "", testkit.FreeAddress(t))
	first.Client(t, true, "shutdown")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if syscall.Kill(first.PID, 0) == nil {
			return errors.New("the first server runs")
		}
		return nil
	})
	var addresses []string
	for range n {
		own := testkit.FreeAddress(t)
		members = append(members, startGalera(t, filepath.Join(first.Dir, "data"), own, addresses...))
		addresses = append(addresses, own)
	}
	return members
}

// startGalera starts a member with a copy of data, if there is any. Others reach it at own, and it joins the others.
func startGalera(t testing.TB, data, own string, others ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, newestMariaDB(t), func(dir string, who *syscall.Credential) {
		if err := os.WriteFile(filepath.Join(dir, "wsrep_sst_nothing"), []byte(withoutTransfer), 0o755); err != nil {
			t.Fatal(err)
		}
		if data != "" {
			run(t, "cp", "--archive", data, dir)
		}
	}, "--wsrep-on=ON", "--wsrep-provider=/usr/lib/galera/libgalera_smm.so", "--binlog-format=ROW", "--wsrep-sst-method=nothing", "--wsrep-node-address=127.0.0.1",
		"--wsrep-cluster-address=gcomm://"+strings.Join(others, ","),
		"--wsrep-provider-options=gmcast.listen_addr=tcp://"+own+";ist.recv_addr="+testkit.FreeAddress(t))
}

// newestMariaDB is a server in a root of its own that does not run yet.
func newestMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	m := newMariaDB(t)
	m.root = rootOf(t, "mariadb", m.Dir)
	// For the script that initialises a data folder. The file alone: the folder that is removed afterwards must not show the machine's /dev.
	mount(t, os.DevNull, filepath.Join(m.root, os.DevNull), 0)
	return m
}

// newMariaDB is a server that does not run yet.
func newMariaDB(t testing.TB) *MariaDB {
	t.Helper()
	testkit.NeedRoot(t)
	who := owner(t)
	return &MariaDB{Dir: workDir(t, "my", who), Port: freePort(t), who: who}
}

// StartMariaDBOn is StartMariaDB with something in its working directory, which prepare puts there: a file system for its log, for
// example.
func StartMariaDBOn(t testing.TB, prepare func(dir string, who *syscall.Credential), args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, newMariaDB(t), prepare, args...)
}

// StartMariaDBApart is StartMariaDB with InnoDB's files in two folders beside the data directory, innodb/data and
// innodb/logs, as Vitess has them.
func StartMariaDBApart(t testing.TB, args ...string) *MariaDB {
	t.Helper()
	return startMariaDB(t, newMariaDB(t), func(dir string, who *syscall.Credential) {
		for _, folder := range []string{"innodb/data", "innodb/logs"} {
			folder = filepath.Join(dir, folder)
			if err := errors.Join(os.MkdirAll(folder, 0o755), os.Chown(folder, int(who.Uid), int(who.Gid))); err != nil {
				t.Fatal(err)
			}
		}
	}, append([]string{"--innodb-data-home-dir=../innodb/data", "--innodb-log-group-home-dir=../innodb/logs"}, args...)...)
}

// startMariaDB starts a server, with what prepare puts into its working directory. Its data folder is initialised unless that is there.
func startMariaDB(t testing.TB, m *MariaDB, prepare func(dir string, who *syscall.Credential), args ...string) *MariaDB {
	t.Helper()
	if prepare != nil {
		prepare(m.Dir, m.who)
	}
	data := "--datadir=" + m.inside("data")
	installing := append([]string{"--no-defaults", data, "--auth-root-authentication-method=normal", "--skip-test-db", "--force"}, innodbOptions(args)...)
	if _, err := os.Stat(filepath.Join(m.Dir, "data", "mysql")); err != nil {
		if out, err := m.command(t, "mariadb-install-db", installing...).CombinedOutput(); err != nil {
			t.Fatalf("mariadb-install-db: %v\n%s", err, out)
		}
		m.moveLog(t, "ib_logfile0", args)
	}
	args = append([]string{"--no-defaults", data, "--socket=" + m.inside("s"), "--bind-address=127.0.0.1",
		fmt.Sprintf("--port=%d", m.Port), "--pid-file=" + m.inside("pid"), "--max-connections=300"}, args...)
	cmd := m.command(t, "mariadbd", args...)
	start(t, cmd, filepath.Join(m.Dir, "log"), syscall.SIGKILL) // an orderly end takes seconds, for data that is thrown away
	m.PID = cmd.Process.Pid
	db := m.Open(t, nil)
	testkit.Eventually(t, testkit.DefaultTimeout, db.Ping)
	return m
}

// inside is the path of one of its files as the server and programs in its root see it.
func (m *MariaDB) inside(name string) string {
	if m.root != "" {
		return filepath.Join("/run", name)
	}
	return filepath.Join(m.Dir, name)
}

// command is a program of its package, with its credentials, in its root.
func (m *MariaDB) command(t testing.TB, program string, args ...string) *exec.Cmd {
	t.Helper()
	if m.root != "" {
		return commandIn(m.root, m.who, program, args...)
	}
	cmd := exec.Command(testkit.Tool(t, program), args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.who}
	cmd.Dir = m.Dir
	return cmd
}

// logHome is the option for where InnoDB's log is.
const logHome = "--innodb-log-group-home-dir="

// innodbOptions are those for where InnoDB's other files are, which count when they are made, too.
func innodbOptions(args []string) (options []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "--innodb-") && !strings.HasPrefix(a, logHome) {
			options = append(options, a)
		}
	}
	return options
}

// moveLog moves InnoDB's log from the new data folder to where the options have it: there each flush may take long. It has all of its
// blocks then, or each flush would wait for the file system's journal as well.
func (m *MariaDB) moveLog(t testing.TB, log string, args []string) {
	t.Helper()
	data := filepath.Join(m.Dir, "data")
	for _, a := range args {
		to, ok := strings.CutPrefix(a, logHome)
		if !ok {
			continue
		}
		if filepath.IsAbs(to) {
			to = filepath.Join(m.root, to)
		} else {
			to = filepath.Join(data, to)
		}
		from := filepath.Join(data, log)
		run(t, "cp", "--archive", "--sparse=never", from, to)
		run(t, "rm", "-r", from)
	}
}

// Socket is the path of its local socket.
func (m *MariaDB) Socket() string { return filepath.Join(m.Dir, "s") }

// Client has MariaDB's own client run a script on one connection, over TCP or the local socket.
func (m *MariaDB) Client(t testing.TB, local bool, script string, args ...string) {
	t.Helper()
	m.client(t, "mariadb", local, script, args...)
}

// client has the client of a package run a script.
func (m *MariaDB) client(t testing.TB, program string, local bool, script string, args ...string) {
	t.Helper()
	connect := []string{"--host=127.0.0.1", fmt.Sprintf("--port=%d", m.Port)}
	if local {
		connect = []string{"--protocol=socket", "--socket=" + m.inside("s")}
	}
	cmd := m.command(t, program, slices.Concat([]string{"--no-defaults", "--user=root"}, connect, args)...)
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", program, strings.Join(args, " "), err, out)
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
