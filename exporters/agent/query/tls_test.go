package query

import (
	"context"
	"crypto/tls"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/certificate"
)

// Statements on encrypted connections are counted and named like others, those of
// connections that were there before the agent too, and nothing is taken for plain text.
func TestQueryTLSPostgres(t *testing.T) {
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "secret", "ssl": "on", "autovacuum": "off"},
		func(data string) { certified(t, data) })
	old := connectEncrypted(t, pg.URL)
	q := startQuery(t)
	querytest.WaitForServer(t, q, "secret")
	for name, c := range map[string]*pgx.Conn{"before the agent": old, "after": connectEncrypted(t, pg.URL)} {
		t.Run(name, func(t *testing.T) {
			got := querytest.During(t, q, "secret", 1004, func() {
				querytest.Run(t, c, "begin")
				querytest.Run(t, c, "create temp table t as select 1 as i")
				for range 1000 {
					if _, err := c.Exec(context.Background(), "update t set i = i + $1", 1); err != nil {
						t.Fatal(err)
					}
				}
				querytest.Run(t, c, "with x as (select 1) delete from t")
				querytest.Run(t, c, "rollback")
			})
			querytest.WantCounts(t, got, map[string]uint64{"begin": 1, "other": 1, "update": 1000, "delete": 1, "rollback": 1})
			querytest.WantSum(t, got)
		})
	}
	t.Run("churn", func(t *testing.T) {
		got := querytest.During(t, q, "secret", 100, func() {
			for range 100 {
				c := connectEncrypted(t, pg.URL)
				querytest.Run(t, c, "select 1")
				c.Close(context.Background())
			}
		})
		querytest.WantCounts(t, got, map[string]uint64{"select": 100})
	})
	t.Run("without encryption as before", func(t *testing.T) {
		got := querytest.During(t, q, "secret", 100, func() { pg.Bench(t, "select 1;\n", "-t", "100", "-M", "prepared") })
		querytest.WantCounts(t, got, map[string]uint64{"select": 100})
	})
}

func TestQueryTLSMariaDB(t *testing.T) {
	my := servertest.StartMariaDB(t, encryptedMariaDB(t)...)
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, func(c *mysql.Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} })
	got := querytest.During(t, q, name, 2000, func() {
		var cipher string
		if err := db.QueryRow("show status like 'Ssl_cipher'").Scan(new(string), &cipher); err != nil || cipher == "" {
			t.Fatalf("not encrypted: cipher %q, %v", cipher, err)
		}
		for i := range 999 {
			var n int
			if err := db.QueryRow("select ?", i).Scan(&n); err != nil {
				t.Fatal(err)
			}
		}
		for range 1000 {
			if err := db.QueryRow("select 1").Scan(new(int)); err != nil {
				t.Fatal(err)
			}
		}
	})
	querytest.WantCounts(t, got, map[string]uint64{"other": 1, "select": 1999})
	querytest.WantSum(t, got)
}

// connectEncrypted opens a connection with TLS that is closed when the test ends.
func connectEncrypted(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.TLSConfig = &tls.Config{InsecureSkipVerify: true}
	c, err := pgx.ConnectConfig(context.Background(), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// encryptedMariaDB returns the arguments of a server that takes connections with TLS.
func encryptedMariaDB(t *testing.T) []string {
	t.Helper()
	dir := t.TempDir()
	certified(t, dir)
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o755,
		filepath.Join(dir, certificate.File): 0o644, filepath.Join(dir, certificate.Key): 0o644} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	return []string{"--ssl-cert=" + filepath.Join(dir, certificate.File), "--ssl-key=" + filepath.Join(dir, certificate.Key)}
}

// certified gives a server's data directory, or another folder of its user, a certificate.
func certified(t *testing.T, dir string) {
	t.Helper()
	if err := certificate.Write(dir); err != nil {
		t.Fatal(err)
	}
}
