package query

import (
	"cmp"
	"crypto/tls"
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// ownCounts is MySQL's own count of statements by command. What it cannot parse is in none of its counts.
func ownCounts(t *testing.T, db *sql.DB) (counts map[string]uint64) {
	t.Helper()
	// Com_stmt_* are what the protocol does with prepared statements; Com_admin_commands are no statements.
	rows, err := db.Query("show global status where variable_name like 'Com\\_%' " +
		"and variable_name not like 'Com\\_stmt%' and variable_name <> 'Com_admin_commands'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	commands := map[string]string{"Com_select": "select", "Com_insert": "insert", "Com_replace": "insert", "Com_update": "update", "Com_delete": "delete",
		"Com_insert_select": "insert", "Com_replace_select": "insert", "Com_update_multi": "update", "Com_delete_multi": "delete",
		"Com_begin": "begin", "Com_commit": "commit", "Com_rollback": "rollback", "Com_rollback_to_savepoint": "rollback", "Com_load": "copy"}
	counts = map[string]uint64{}
	for rows.Next() {
		var name string
		var n uint64
		if err := rows.Scan(&name, &n); err != nil {
			t.Fatal(err)
		}
		counts[cmp.Or(commands[name], "other")] += n
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return counts
}

// Statements of MySQL's own client, which has attributes for queries, and of others are counted by command as the server
// itself counts them.
func TestQueryMySQL(t *testing.T) {
	my := servertest.StartMySQL(t, "--local-infile=1")
	if err := os.WriteFile(filepath.Join(my.Dir, "lines"), []byte(strings.Repeat("1\n", 20000)), 0o644); err != nil {
		t.Fatal(err)
	}
	my.Client(t, false, "create database d; create table d.t (i int); create table d.f (i int); insert into d.t values (0)")
	old := dialMySQL(t, &my.MariaDB, withAttributes)
	compressed := my.Open(t, withCompression)
	if err := compressed.Ping(); err != nil {
		t.Fatal(err)
	}
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, nil)
	db.SetMaxOpenConns(1)
	var version string
	if err := db.QueryRow("select version()").Scan(&version); err != nil {
		t.Fatal(err)
	}
	t.Logf("MySQL %s", version)
	if info := querytest.WaitForServer(t, q, name); info["version"] == "" || !strings.HasPrefix(version, info["version"]) || info["db_system"] != "mysql" {
		t.Errorf("of MySQL %s it reports %v", version, info)
	}

	const each = 200
	script := strings.Repeat("begin; select 1; insert into d.t values (1); update d.t set i = i + 1 limit 1; delete from d.t limit 1; commit;\n"+
		"start transaction; replace into d.t values (2); rollback; set @a = 1;\n", each)
	attribute := func(n int, value string) string {
		text := ""
		for i := range n {
			text += fmt.Sprintf(" name%d %s", i, value)
		}
		return "query_attributes" + text + "\n"
	}
	traced := func(attributes string, n int) string {
		return strings.Repeat(attributes+"select 1;\n"+attributes+"update d.t set i = 1 limit 1;\n", n)
	}
	const traceparent = "query_attributes traceparent 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\n"
	type test struct {
		name string
		do   func(t *testing.T)
		// inner are commands of statements that EXECUTE runs, or that follow another one in a text: the server counts them, too.
		inner map[string]uint64
		// unknown are statements whose text is not read: what else they are.
		unknown map[string]uint64
	}
	// The client tries out "select $$" first, which the server does not parse.
	var unparsed uint64
	client := func(local bool, script string, args ...string) func(*testing.T) {
		return func(t *testing.T) {
			my.Client(t, local, script, args...)
			unparsed = 1
		}
	}
	driver := func(change func(*mysql.Config), do func(t *testing.T, db *sql.DB)) func(*testing.T) {
		return func(t *testing.T) {
			db := my.Open(t, change)
			defer db.Close()
			db.SetMaxOpenConns(1)
			do(t, db)
		}
	}
	statements := func(t *testing.T, db *sql.DB) {
		for i := range each {
			if err := db.QueryRow("select ?", i).Scan(new(int)); err != nil {
				t.Fatal(err)
			}
			execMySQL(t, db, "insert into d.t values (1)")
			tx, err := db.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("delete from d.t where i = ?", 1); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
		}
	}
	long := strings.Repeat("x", 120)
	for _, c := range []test{
		{name: "TCP", do: client(false, script, "--ssl-mode=DISABLED")},
		{name: "local socket", do: client(true, script)},
		{name: "TLS preferred", do: client(false, script)},
		{name: "TLS required on the local socket", do: client(true, script, "--ssl-mode=REQUIRED")},
		{name: "a trace's attribute", do: client(false, traced(traceparent, each), "--ssl-mode=DISABLED")},
		{name: "a trace's attribute, encrypted", do: client(false, traced(traceparent, each))},
		{name: "few attributes", do: client(false, traced(attribute(3, "v"), each), "--ssl-mode=DISABLED")},
		{name: "more attributes than are read", do: client(false, traced(attribute(20, "v"), each)+traced(attribute(1, long), each)+traced(attribute(1, long+long+long), each)),
			unknown: map[string]uint64{"select": 3 * each, "update": 3 * each}},
		{name: "text that is cut short behind an attribute", do: client(false, traced("query_attributes n "+long[:106]+"\n", each)),
			unknown: map[string]uint64{"select": each, "update": each}},
		{name: "long comments before", do: client(false, strings.Repeat("/*"+long+"*/ select 1;\n/* short */ select 1;\n", each), "--comments"),
			unknown: map[string]uint64{"select": each}},
		{name: "files", do: client(false, traced(traceparent, 1)+strings.Repeat(traceparent+"load data local infile '/run/lines' into table d.f;\n", 3), "--local-infile=1", "--ssl-mode=DISABLED")},
		{name: "files, encrypted", do: client(false, strings.Repeat(traceparent+"load data local infile '/run/lines' into table d.f;\n", 3), "--local-infile=1")},
		{name: "prepared by text", do: client(false, strings.Repeat("prepare s from 'select ?'; set @a = 1; execute s using @a; deallocate prepare s;\n", each)),
			inner: map[string]uint64{"select": each}},
		{name: "go-sql-driver", do: driver(nil, statements)},
		{name: "go-sql-driver, encrypted", do: driver(func(c *mysql.Config) { c.TLS = &tls.Config{InsecureSkipVerify: true} }, statements)},
		{name: "connections that come and go", do: func(t *testing.T) {
			for i := range each {
				once(t, &my.MariaDB, []string{"tls", "tcp", "unix"}[i%3])
			}
		}},
		{name: "several in a text", do: driver(func(c *mysql.Config) { c.MultiStatements = true }, func(t *testing.T, db *sql.DB) {
			for range each {
				execMySQL(t, db, "update d.t set i = 1 limit 1; delete from d.t limit 1; commit")
				if err := db.QueryRow("select 1").Scan(new(int)); err != nil {
					t.Fatal(err)
				}
			}
		}), inner: map[string]uint64{"delete": each, "commit": each}},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := ownCounts(t, db)
			seenBefore := querytest.AtRest(t, q, name)
			unparsed = 0
			c.do(t)
			want := ownCounts(t, db)
			for command := range want {
				want[command] -= before[command] + c.inner[command] + c.unknown[command]
			}
			want["select"] += unparsed
			want["other"] += querytest.SumOf(c.unknown)
			maps.DeleteFunc(want, func(_ string, n uint64) bool { return n == 0 })
			got := querytest.Since(t, q, name, seenBefore, querytest.SumOf(want))
			if !maps.Equal(got.Counts, want) || len(got.Lost) != 0 || got.Unknown != float64(querytest.SumOf(c.unknown)) {
				t.Errorf("statements %v, %v of unknown command, lost %v; want %v, %d", got.Counts, got.Unknown, got.Lost, want, querytest.SumOf(c.unknown))
			}
			querytest.WantSum(t, got)
		})
	}
	t.Run("texts", func(t *testing.T) {
		testMySQLTexts(t, &my.MariaDB, db, q, name, "start replica", "stop replica", "table d.t", "values row(1)", "select /*+ max_execution_time(1000) */ 1")
	})
	t.Run("cursor", func(t *testing.T) { testMySQLCursor(t, &my.MariaDB, db, q, name) })
	t.Run("on the wire", func(t *testing.T) { testMySQLWire(t, my, old, q, name) })
	t.Run("compressed", func(t *testing.T) { testMySQLCompressed(t, my, compressed, db, q, name) })
	t.Run("X protocol", func(t *testing.T) { testMySQLX(t, my, db, q, name) })
}
