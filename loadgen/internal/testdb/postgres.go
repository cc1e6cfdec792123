// Package testdb starts real database servers for tests, each in a folder and on a socket of
// its own, and cleans up behind them.
package testdb

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Postgres is a PostgreSQL server that lives as long as its test. It listens on a Unix
// socket only.
type Postgres struct {
	t       testing.TB
	folder  string
	program string
	who     *syscall.Credential
	cmd     *exec.Cmd
}

// StartPostgres makes a cluster and starts it.
func StartPostgres(t testing.TB, settings ...string) *Postgres {
	t.Helper()
	initdb := testkit.Tool(t, "initdb")
	p := &Postgres{t: t, program: testkit.Tool(t, "postgres"), folder: Folder(t)}
	p.who = unprivileged(t, p.folder)
	run := exec.Command(initdb, "-D", filepath.Join(p.folder, "data"), "-A", "trust", "-U", "postgres", "--no-sync")
	run.Dir, run.SysProcAttr = p.folder, &syscall.SysProcAttr{Credential: p.who}
	if out, err := run.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	conf := fmt.Sprintf("listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\nshared_buffers = 16MB\nmax_connections = 40\n", p.folder)
	for _, s := range settings {
		conf += s + "\n"
	}
	file, err := os.OpenFile(filepath.Join(p.folder, "data", "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(conf); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	p.Start()
	t.Cleanup(p.Stop)
	return p
}

// Start starts the server and waits until it answers.
func (p *Postgres) Start() {
	p.t.Helper()
	log, err := os.OpenFile(filepath.Join(p.folder, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		p.t.Fatal(err)
	}
	defer log.Close()
	p.cmd = exec.Command(p.program, "-D", filepath.Join(p.folder, "data"))
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = p.folder, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: p.who}
	if err := p.cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	testkit.Eventually(p.t, testkit.DefaultTimeout, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		c, err := pgx.Connect(ctx, p.DSN())
		if err != nil {
			return err
		}
		return c.Close(ctx)
	})
}

// Stop ends the server at once, as a crash would; its next Start recovers.
func (p *Postgres) Stop() {
	if p.cmd == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGQUIT)
	_ = p.cmd.Wait()
	p.cmd = nil
}

// DSN is the connection string.
func (p *Postgres) DSN() string { return "host=" + p.folder + " user=postgres dbname=postgres" }

// PID is the server's process ID.
func (p *Postgres) PID() int { return p.cmd.Process.Pid }

// Count returns the number a query answers with.
func (p *Postgres) Count(query string) int {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	c, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close(ctx)
	var n int
	if err := c.QueryRow(ctx, query).Scan(&n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// Demand makes the server require a role's password.
func (p *Postgres) Demand(role string) {
	p.t.Helper()
	path := filepath.Join(p.folder, "data", "pg_hba.conf")
	rules, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	// The first rule that fits counts.
	if err := os.WriteFile(path, append([]byte("local all "+role+" scram-sha-256\nhost all "+role+" samehost scram-sha-256\n"), rules...), 0o600); err != nil {
		p.t.Fatal(err)
	}
	p.Exec("select pg_reload_conf()")
}

// Exec runs a statement.
func (p *Postgres) Exec(statement string) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testkit.DefaultTimeout)
	defer cancel()
	c, err := pgx.Connect(ctx, p.DSN())
	if err != nil {
		p.t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, statement); err != nil {
		p.t.Fatal(err)
	}
}

// Folder is a work folder on a disk (the usual temporary folder may be in memory), with a name
// short enough for a socket in it, removed when the test ends.
func Folder(t testing.TB) string {
	t.Helper()
	folder, err := os.MkdirTemp("/var/tmp", "lg")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(folder) })
	return folder
}

// unprivileged gives folder to PostgreSQL's user, or else to nobody, if the test runs as root:
// database servers refuse to run as root. It returns nil for any other user.
func unprivileged(t testing.TB, folder string) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup(pgserver.Owner)
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			t.Fatal(err)
		}
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(folder, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}
