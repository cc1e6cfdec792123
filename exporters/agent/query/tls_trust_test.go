package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/testkit"
)

// encrypted is connectEncrypted, and queries the server whether it is.
func encrypted(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	c := connectEncrypted(t, url)
	var is bool
	if err := c.QueryRow(context.Background(), "select ssl from pg_stat_ssl where pid = pg_backend_pid()").Scan(&is); err != nil || !is {
		t.Fatalf("the connection is not encrypted: %v", err)
	}
	return c
}

// isRead reports whether the TLS library of the server of a process is probed for it.
func (q *query) isRead(pid int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, srv := range q.fleet.tracked {
		if srv.PID == pid {
			return srv.tls
		}
	}
	return false
}

// duplicate copies a program file.
func duplicate(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, text, 0o755)
	}
	if err == nil {
		err = os.Chmod(to, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// opensslOf returns the libssl that a program loads.
func opensslOf(t *testing.T, program string) string {
	t.Helper()
	out, err := osexec.Command("ldd", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 2 && f[0] == "libssl.so.3" {
			return f[2]
		}
	}
	testkit.Skip(t, "this PostgreSQL has no libssl.so.3")
	return ""
}

// refusals returns how many failures are counted for a server.
func refusals(t *testing.T, q *query, label string) float64 {
	for _, f := range collectortest.Gather(t, q) {
		for _, m := range f.Metric {
			if f.GetName() == "plumbline_query_attach_errors_total" && collectortest.Labels(m)["server"] == label {
				return m.Counter.GetValue()
			}
		}
	}
	return 0
}

// A server whose program somebody else than root could have made does not get a trap put into the library that it
// shares with others: its encrypted statements are reported as lost, and its plain ones are counted. A trusted server
// beside it is read, exactly.
func TestQueryTLSUntrusted(t *testing.T) {
	postgres := testkit.Tool(t, "postgres")
	dir, err := os.MkdirTemp("/var/tmp", "untrusted-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	program := filepath.Join(dir, "postgres")
	duplicate(t, postgres, program)
	const nobody = 65534
	if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(program, nobody, nobody)); err != nil {
		t.Fatal(err)
	}
	// Root's library, but one that no other server on this machine has: a server that is trusted
	// would have it probed for the fake as well.
	duplicate(t, opensslOf(t, postgres), filepath.Join(dir, "libssl.so.3"))
	t.Setenv("LD_LIBRARY_PATH", dir)
	fake, err := pgserver.Start(pgserver.Options{Initdb: testkit.Tool(t, "initdb"), Postgres: program,
		Settings: map[string]string{"cluster_name": "untrusted", "ssl": "on", "autovacuum": "off"},
		Prepare:  func(data string) { certified(t, data) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fake.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := os.Unsetenv("LD_LIBRARY_PATH"); err != nil {
		t.Fatal(err)
	}
	q := startQuery(t)
	querytest.WaitForServer(t, q, "untrusted")
	c := encrypted(t, fake.URL)
	before := querytest.AtRest(t, q, "untrusted")
	for range 10 {
		querytest.Run(t, c, "select 1")
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if lost := querytest.Collect(t, q, "untrusted").Minus(before).Lost["encrypted"]; lost < 10 {
			return fmt.Errorf("%v answers are reported as encrypted: %+v", lost, querytest.Collect(t, q, "untrusted"))
		}
		return nil
	})
	if q.isRead(fake.PID) {
		t.Fatal("a library is probed for a server that anybody could have made")
	}
	if n := refusals(t, q, "untrusted"); n != 1 {
		t.Errorf("%v refusals counted, want 1", n)
	}
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "trusted", "ssl": "on", "autovacuum": "off"},
		func(data string) { certified(t, data) })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if !q.isRead(pg.PID) {
			return errors.New("the trusted server's library is not probed")
		}
		return nil
	})
	trusted := encrypted(t, pg.URL)
	got := querytest.During(t, q, "trusted", 500, func() {
		for range 500 {
			querytest.Run(t, trusted, "select 1")
			querytest.Run(t, c, "select 1")
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 500})
}

// With TLS off no library is probed, for any server.
func TestQueryTLSOff(t *testing.T) {
	testkit.NeedBPF(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "off", "ssl": "on"}, func(data string) { certified(t, data) })
	q := startQueryWith(t, Options{TLS: TLSOff})
	querytest.WaitForServer(t, q, "off")
	if n := len(q.programs.tls.probes); n != 0 || q.isRead(pg.PID) {
		t.Errorf("%d libraries are probed", n)
	}
	if _, err := New(collector.Options{Log: slog.New(slog.DiscardHandler)}, Options{TLS: "all"}); err == nil {
		t.Error("an unknown value is taken")
	}
}
