package testdb

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// StartStandby makes a standby of a server by pg_basebackup, starts it, and makes the server wait
// for it at each commit.
func StartStandby(t testing.TB, primary *Postgres) *Postgres {
	t.Helper()
	p := &Postgres{t: t, program: primary.program, folder: Folder(t)}
	p.who = unprivileged(t, p.folder)
	p.run(testkit.Tool(t, "pg_basebackup"), "-D", p.data(), "-h", primary.folder, "-U", "postgres", "-R", "-c", "fast", "-X", "stream", "--no-sync")
	// The last line for a setting counts.
	settings := fmt.Sprintf("unix_socket_directories = '%s'\nprimary_conninfo = 'host=%s user=postgres application_name=standby'\n", p.folder, primary.folder)
	file, err := os.OpenFile(filepath.Join(p.data(), "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(settings); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	p.Start()
	t.Cleanup(p.Stop)
	primary.Exec("alter system set synchronous_standby_names = 'standby'")
	primary.Exec("select pg_reload_conf()")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := primary.Count("select count(*) from pg_stat_replication where application_name = 'standby' and sync_state = 'sync'"); n != 1 {
			return fmt.Errorf("%d synchronous standbys", n)
		}
		return nil
	})
	return p
}

// Promote makes a standby the primary.
func (p *Postgres) Promote() {
	p.t.Helper()
	p.run(testkit.Tool(p.t, "pg_ctl"), "promote", "-w", "-D", p.data())
}

func (p *Postgres) data() string { return filepath.Join(p.folder, "data") }

func (p *Postgres) run(program string, args ...string) {
	p.t.Helper()
	c := exec.Command(program, args...)
	c.Dir, c.SysProcAttr = p.folder, &syscall.SysProcAttr{Credential: p.who}
	if out, err := c.CombinedOutput(); err != nil {
		p.t.Fatalf("%s: %v\n%s", filepath.Base(program), err, out)
	}
}
