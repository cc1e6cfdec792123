package query

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The versions of PostgreSQL beside the distribution's, which all other tests use: those of `make test`, and what else was
// fetched. `make test-all` fetches one that is not released yet.
var otherVersions = versions([]int{16, 17, 18}, servertest.Fetched(), servertest.Unstable())

func versions(lists ...[]int) []int {
	all := slices.Concat(lists...)
	slices.Sort(all)
	return slices.Compact(all)
}

// Every version's statements are counted, named and split alike.
func TestQueryVersions(t *testing.T) {
	q := startQuery(t)
	for _, major := range otherVersions {
		version := strconv.Itoa(major)
		t.Run(version, func(t *testing.T) {
			name := "pg" + version
			pg := servertest.StartPostgresOf(t, major, map[string]string{"cluster_name": name, "autovacuum": "off", "ssl": "on"},
				func(data string) { certified(t, data) })
			// The server is followed before its files have answered, which may take the next scan.
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if got := querytest.WaitForServer(t, q, name)["version"]; got != version {
					return fmt.Errorf("it is taken for version %q", got)
				}
				return nil
			})
			exec(t, pg, "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(0, 99) i")
			const transaction = "begin;\nupdate t set n = n + 1 where id = :client_id;\nselect n from t where id = :client_id;\ncommit;\n"
			want := map[string]uint64{"begin": 1000, "update": 1000, "select": 1000, "commit": 1000}
			for _, c := range []struct{ protocol, host string }{{"simple", "127.0.0.1"}, {"extended", "127.0.0.1"}, {"prepared", "127.0.0.1"}, {"prepared", pg.Dir}} {
				got := querytest.During(t, q, name, querytest.SumOf(want), func() { pg.Bench(t, transaction, "-M", c.protocol, "-h", c.host, "-c", "10", "-t", "100") })
				querytest.WantCounts(t, got, want)
				querytest.WantSum(t, got)
				if sync := got.Phases["commit"]["sync"]; sync <= 0 {
					t.Errorf("%s: commits waited %v s for sync", c.protocol, sync)
				}
			}
			c := connectEncrypted(t, pg.URL)
			got := querytest.During(t, q, name, 100, func() {
				for i := range 100 {
					if _, err := c.Exec(context.Background(), "delete from t where id = $1", i); err != nil {
						t.Fatal(err)
					}
				}
			})
			querytest.WantCounts(t, got, map[string]uint64{"delete": 100})
			querytest.WantSum(t, got)
		})
	}
}

// However PostgreSQL 18 reads, a session that waits for its own reads is in read, and not in wait.
func TestQueryReadMethods(t *testing.T) {
	q := startQuery(t)
	for _, method := range []string{"worker", "sync"} {
		t.Run(method, func(t *testing.T) {
			name := "io-" + method
			pg := servertest.StartPostgresOf(t, 18, map[string]string{
				"cluster_name": name, "io_method": method, "autovacuum": "off", "max_parallel_workers_per_gather": "0",
				"shared_buffers": "1MB", "jit": "off"}, nil)
			querytest.WaitForServer(t, q, name)
			c := pg.Connect(t)
			querytest.Run(t, c, "create table big as select i, repeat('x', 500) from generate_series(1, 100000) i")
			querytest.Run(t, c, "vacuum big")
			querytest.Run(t, c, "checkpoint")
			var file string
			if err := c.QueryRow(t.Context(), "select pg_relation_filepath('big')").Scan(&file); err != nil {
				t.Fatal(err)
			}
			if err := rig.DropCache(filepath.Join(pg.Data, file)); err != nil {
				t.Fatal(err)
			}
			got := querytest.During(t, q, name, 1, func() { querytest.Run(t, c, "select count(*) from big") })
			querytest.WantCounts(t, got, map[string]uint64{"select": 1})
			querytest.WantSum(t, got)
			p := got.Phases["select"]
			if p["read"] <= 0 || p["read"] < 0.9*(p["read"]+p["wait"]) {
				t.Errorf("a cold scan: %v", p)
			}
			// What workers read is none of the session's calls, and the wake-ups by them are no reads.
			if pages := scanPages(t, c); method == "worker" && got.Reads["hit"] > 0.1*float64(pages) {
				t.Errorf("the session read %v of %v pages itself", got.Reads, pages)
			}
		})
	}
}

// scanPages is how many pages the table has.
func scanPages(t *testing.T, c *pgx.Conn) (pages int) {
	t.Helper()
	if err := c.QueryRow(t.Context(), "select pg_relation_size('big') / 8192").Scan(&pages); err != nil {
		t.Fatal(err)
	}
	return pages
}
