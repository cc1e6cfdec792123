package collector

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// Behind a pooler many clients share few of the server's processes, a statement or a transaction at a time: each
// statement is counted once, as what it is. The server's log has what the pooler sets for its clients.
func TestQueryPooler(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "pooled", "autovacuum": "off", "log_statement": "all"}, nil)
	waitForServer(t, q, "pooled")
	exec(t, pg, "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(0, 99) i")
	const transaction = "begin;\nupdate t set n = n + 1 where id = :client_id;\nselect n from t where id = :client_id;\ncommit;\n"
	for _, c := range []struct {
		mode, protocol, script string
		want                   map[string]uint64
	}{
		{"transaction", "simple", transaction, map[string]uint64{"begin": 1000, "update": 1000, "select": 1000, "commit": 1000}},
		{"transaction", "extended", transaction, map[string]uint64{"begin": 1000, "update": 1000, "select": 1000, "commit": 1000}},
		{"statement", "simple", "select n from t where id = :client_id;\n", map[string]uint64{"select": 1000}},
		{"statement", "extended", "select n from t where id = :client_id;\n", map[string]uint64{"select": 1000}},
	} {
		t.Run(c.mode+" "+c.protocol, func(t *testing.T) {
			settings := occurrences(t, pg.Log, "statement: SET ")
			port := servertest.StartPooler(t, pg, c.mode)
			before := look(t, q, "pooled")
			pg.Bench(t, c.script, "-M", c.protocol, "-p", strconv.Itoa(port), "-c", "20", "-t", "50")
			set := occurrences(t, pg.Log, "statement: SET ") - settings
			if set == 0 {
				t.Error("the pooler set nothing for its clients")
			}
			c.want["other"] = set
			got := since(t, q, "pooled", before, sumOf(c.want))
			wantCounts(t, got, c.want)
			wantSum(t, got)
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
