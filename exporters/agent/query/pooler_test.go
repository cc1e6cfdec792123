package query

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Behind a pooler many clients share few of the server's processes, a statement or a transaction at a time: each
// statement is counted once, as what it is. The server's log has what the pooler runs itself.
func TestQueryPooler(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "pooled", "autovacuum": "off", "log_statement": "all"}, nil)
	querytest.WaitForServer(t, q, "pooled")
	exec(t, pg, "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(0, 99) i")
	const transaction = "begin;\nupdate t set n = n + 1 where id = :client_id;\nselect n from t where id = :client_id;\ncommit;\n"
	const reads = "select n from t where id = :client_id;\n"
	each, selects := map[string]uint64{"begin": 1000, "update": 1000, "select": 1000, "commit": 1000}, map[string]uint64{"select": 1000}
	bouncer := func(mode string) func() int {
		return func() int { return servertest.StartPooler(t, pg, mode) }
	}
	pgpool := func() int { return servertest.StartPgpool(t, pg) }
	for _, c := range []struct {
		name, protocol, script string
		start                  func() int
		own                    string // what the pooler runs for each client
		want                   map[string]uint64
	}{
		{"pgbouncer, transaction", "simple", transaction, bouncer("transaction"), "SET ", each},
		{"pgbouncer, transaction", "extended", transaction, bouncer("transaction"), "SET ", each},
		{"pgbouncer, statement", "simple", reads, bouncer("statement"), "SET ", selects},
		{"pgbouncer, statement", "extended", reads, bouncer("statement"), "SET ", selects},
		{"Pgpool-II", "simple", transaction, pgpool, "DISCARD ALL", each},
		{"Pgpool-II", "extended", transaction, pgpool, "DISCARD ALL", each},
		{"Pgpool-II", "prepared", transaction, pgpool, "DISCARD ALL", each},
	} {
		t.Run(c.name+", "+c.protocol, func(t *testing.T) {
			runs := func(what string) uint64 { return occurrences(t, pg.Log, "statement: "+what) }
			port := c.start()
			var at querytest.Seen
			var own, versions uint64
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				own, versions = runs(c.own), runs("SELECT version()")
				at = querytest.AtRest(t, q, "pooled")
				if runs(c.own) != own || runs("SELECT version()") != versions {
					return errors.New("a pooler has just run something")
				}
				return nil
			})
			pg.Bench(t, c.script, "-M", c.protocol, "-p", strconv.Itoa(port), "-c", "20", "-t", "50")
			// A pooler may run something after a client has gone.
			var got querytest.Seen
			var want map[string]uint64
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				want = maps.Clone(c.want)
				want["other"] = runs(c.own) - own
				want["select"] += runs("SELECT version()") - versions
				if want["other"] == 0 {
					return fmt.Errorf("the pooler ran no %q for its clients", c.own)
				}
				if got = querytest.Since(t, q, "pooled", at, querytest.SumOf(want)); !maps.Equal(got.Counts, want) {
					return fmt.Errorf("statements %v, want %v", got.Counts, want)
				}
				return nil
			})
			querytest.WantCounts(t, got, want)
			querytest.WantSum(t, got)
		})
	}
}

// occurrences counts how often a file has a text.
func occurrences(t *testing.T, file, what string) uint64 {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return uint64(strings.Count(string(text), what))
}
