package testdb

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/tests/testkit"
)

// MariaDB is a MariaDB server that lives as long as its test, on a Unix socket only by default.
type MariaDB struct {
	t       testing.TB
	folder  string
	program string
	more    []string // arguments
	who     *syscall.Credential
	cmd     *exec.Cmd
}

// StartMariaDB makes a data folder and starts a server on it, with more arguments than the usual ones. The user test,
// without a password, may do anything in the database test.
func StartMariaDB(t testing.TB, more ...string) *MariaDB {
	t.Helper()
	install := testkit.Tool(t, "mariadb-install-db")
	m := &MariaDB{t: t, more: more, program: testkit.Tool(t, "mariadbd"), folder: Folder(t)}
	m.who = unprivileged(t, m.folder)
	run := exec.Command(install, "--no-defaults", "--datadir="+m.data(), "--auth-root-authentication-method=normal", "--skip-test-db")
	run.Dir, run.SysProcAttr = m.folder, &syscall.SysProcAttr{Credential: m.who}
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("mariadb-install-db: %v\n%s", err, out)
	}
	m.Start()
	t.Cleanup(m.Stop)
	m.exec("root", "", "create database test", "create user test@localhost", "grant all on test.* to test@localhost")
	return m
}

func (m *MariaDB) data() string { return filepath.Join(m.folder, "data") }

// Socket is the server's socket.
func (m *MariaDB) Socket() string { return filepath.Join(m.folder, "s") }

// DSN is the connection string, in go-sql-driver's form.
func (m *MariaDB) DSN() string { return m.dsn("test", "test") }

func (m *MariaDB) dsn(user, database string) string {
	c := mysql.NewConfig()
	c.User, c.Net, c.Addr, c.DBName, c.Logger = user, "unix", m.Socket(), database, &mysql.NopLogger{}
	return c.FormatDSN()
}

// Start starts the server and waits until it answers.
func (m *MariaDB) Start() {
	m.t.Helper()
	log, err := os.OpenFile(filepath.Join(m.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		m.t.Fatal(err)
	}
	defer log.Close()
	m.cmd = exec.Command(m.program, append([]string{"--no-defaults", "--datadir=" + m.data(), "--socket=" + m.Socket(), "--skip-networking",
		"--pid-file=" + filepath.Join(m.folder, "pid"), "--innodb-buffer-pool-size=32M", "--innodb-log-file-size=16M", "--innodb-flush-log-at-trx-commit=2"}, m.more...)...)
	m.cmd.Dir, m.cmd.Stdout, m.cmd.Stderr = m.folder, log, log
	m.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: m.who}
	if err := m.cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	testkit.Eventually(m.t, testkit.DefaultTimeout, func() error {
		return m.try("root", "", "select 1")
	})
}

// Stop ends the server at once, as a crash would; its next Start recovers.
func (m *MariaDB) Stop() {
	if m.cmd == nil {
		return
	}
	_ = m.cmd.Process.Kill()
	_ = m.cmd.Wait()
	m.cmd = nil
}

func (m *MariaDB) exec(user, database string, statements ...string) {
	m.t.Helper()
	for _, s := range statements {
		if err := m.try(user, database, s); err != nil {
			m.t.Fatalf("%s: %v", s, err)
		}
	}
}

func (m *MariaDB) try(user, database, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	db, err := sql.Open("mysql", m.dsn(user, database))
	if err != nil {
		return err
	}
	defer db.Close()
	_, err = db.ExecContext(ctx, statement)
	return err
}

// Count returns the number a query answers with.
func (m *MariaDB) Count(query string) int {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	db, err := sql.Open("mysql", m.DSN())
	if err != nil {
		m.t.Fatal(err)
	}
	defer db.Close()
	var n int
	if err := db.QueryRowContext(ctx, query).Scan(&n); err != nil {
		m.t.Fatal(fmt.Errorf("%s: %w", query, err))
	}
	return n
}

// Exec runs a statement in the database of the DSN.
func (m *MariaDB) Exec(statement string) {
	m.t.Helper()
	m.exec("test", "test", statement)
}

// Admin runs statements that the user test may not.
func (m *MariaDB) Admin(statements ...string) {
	m.t.Helper()
	m.exec("root", "", statements...)
}
