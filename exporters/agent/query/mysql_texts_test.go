package query

import (
	"database/sql"
	"maps"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// mysqlTexts are statements of MySQL and MariaDB, most of which begin with something else than their command. They come one after the
// other on one connection.
var mysqlTexts = []string{
	"-- a\n# b\n/* c */ /**/ /***/ /* * / */ select 1", "--\tdelete\nselect 1", "\v\f \r\n\tselect 1", "/*/ delete */ select 1",
	"/*!40101 select 1 */", "/*!40101 select*/ 1", "/*! select */ 1", "/*!select 1*/", "/*!40101 */ select 1", "/*!050003 select 1 */",
	"/* a *//*!50003 insert*/ into d.t values (1)", "/*!99999 select 1 */ update d.t set i = 1", "/*!999999 select * / 1 **/ update d.t set i = 1",
	"/*!40101 set names utf8mb4 */", "/*!40101 /* a */ select 1 */", "/*M*/ select 1", "/*M delete */ select 1", "/*M!999999\\- enable */ select 1",
	"(select 1)", "((select 1) union (select 2))", "( /* a */ select 1)", "with a as (select 1) select * from a",
	"insert into d.t select 1", "replace into d.t select 1", "update d.t, d.t as u set d.t.i = 2", "delete d.t from d.t", "do 1", "set @a = 1",
	"handler d.t open as h", "handler h read first", "handler h close",
	"begin", "savepoint a", "rollback to savepoint a", "release savepoint a", "commit", "begin work", "rollback work", "begin /* a */", "commit and no chain",
	"start transaction", "rollback", "start /*!40100 transaction*/ read only", "rollback", "/*!40100 start */ # a\ntransaction with consistent snapshot", "commit",
	"xa start 'a'", "xa end 'a'", "xa prepare 'a'", "xa commit 'a'", "xa begin 'b'", "xa end 'b'", "xa rollback 'b'",
}

// ownDuring is during, beside the server's own counts of that time, to which the last read of them on db belongs,
// without the statements that EXECUTE runs.
func ownDuring(t *testing.T, db *sql.DB, q *query, name string, inner map[string]uint64, f func()) (got querytest.Seen, want map[string]uint64) {
	t.Helper()
	first := ownCounts(t, db)
	before := querytest.AtRest(t, q, name)
	f()
	want = ownCounts(t, db)
	for command := range want {
		want[command] -= first[command] + inner[command]
	}
	maps.DeleteFunc(want, func(_ string, n uint64) bool { return n == 0 })
	return querytest.Since(t, q, name, before, querytest.SumOf(want)), want
}

// testMySQLTexts: each text has the command that the server has it as. more are what it alone has, among these some that it parses
// and refuses. db is for reading its counts.
func testMySQLTexts(t *testing.T, my *servertest.MariaDB, db *sql.DB, q *query, name string, more ...string) {
	client := my.Open(t, nil)
	client.SetMaxOpenConns(1)
	for _, text := range append(mysqlTexts, more...) {
		t.Run(text, func(t *testing.T) {
			got, want := ownDuring(t, db, q, name, nil, func() {
				if _, err := client.Exec(text); err != nil {
					t.Log(err)
				}
			})
			if querytest.SumOf(want) != 2 { // the text, and the last read of the counts
				t.Fatalf("the server has run %v", want)
			}
			querytest.WantCounts(t, got, want)
		})
	}
}

// testMySQLCursor: an execution that opens a cursor, and each fetch from it, are statements, as the server counts them.
func testMySQLCursor(t *testing.T, my *servertest.MariaDB, db *sql.DB, q *query, name string) {
	const prepare, execute, reset, fetch, readOnly, one = "\x16", "\x17", "\x1a", "\x1c", "\x01", "\x01\x00\x00\x00"
	w := dialMySQL(t, my, withAttributes)
	first := status(t, db, "Com_stmt_fetch")
	before := querytest.AtRest(t, q, name)
	w.ok(prepare + "select 1 union select 2 union select 3")
	w.rows(execute + one + readOnly + one)
	w.rows(fetch + one + one)
	w.rows(fetch + one + one)
	w.rows(fetch + one + one)
	w.ok(reset + one)
	fetched := status(t, db, "Com_stmt_fetch") - first
	want := map[string]uint64{"select": 1 + uint64(fetched), "other": 1}
	got := querytest.Since(t, q, name, before, querytest.SumOf(want))
	querytest.WantCounts(t, got, want)
	querytest.WantSum(t, got)
	if fetched != 3 {
		t.Errorf("the server has counted %v fetches", fetched)
	}
}

// What is MariaDB's own.
func TestQueryMariaDB(t *testing.T) {
	t.Run("of the machine", func(t *testing.T) {
		testMariaDB(t, servertest.StartMariaDB(t, append(encryptedMariaDB(t), "--local-infile=1")...))
	})
	// It encrypts without being set up for it.
	t.Run("the newest", func(t *testing.T) { testMariaDB(t, servertest.StartNewMariaDB(t, "--local-infile=1")) })
}

func testMariaDB(t *testing.T, my *servertest.MariaDB) {
	db := my.Open(t, nil)
	db.SetMaxOpenConns(1)
	for _, text := range []string{"create database d", "create table d.t (i int)", "create table d.f (i text)"} {
		execMySQL(t, db, text)
	}
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	t.Run("texts", func(t *testing.T) {
		testMySQLTexts(t, my, db, q, name, "/*M!100101 select 1 */", "/*M! select 1 */", "begin not atomic end", "begin /* a */ not atomic end", "start slave", "stop slave", "values (1)")
	})
	t.Run("cursor", func(t *testing.T) { testMySQLCursor(t, my, db, q, name) })
	for connection, args := range map[string][]string{"TCP": {"--skip-ssl"}, "TLS": {"--ssl"}, "local socket": {"--skip-ssl"}} {
		t.Run("its own client, "+connection, func(t *testing.T) {
			const each, handshakes = 50, "Ssl_finished_accepts"
			before := status(t, db, handshakes)
			got, want := ownDuring(t, db, q, name, map[string]uint64{"select": each}, func() {
				my.Client(t, connection == "local socket", strings.Repeat("begin; select 1; insert into d.t values (1); update d.t set i = 2 limit 1; delete from d.t limit 1; commit;\n"+
					"prepare s from 'select ?'; execute s using 1; deallocate prepare s; start transaction; rollback;\n", each), args...)
			})
			if want["select"] < each || want["commit"] != each {
				t.Errorf("the server has run %v", want)
			}
			querytest.WantCounts(t, got, want)
			querytest.WantSum(t, got)
			if n := status(t, db, handshakes) - before; (n != 0) != (connection == "TLS") {
				t.Errorf("%v encrypted connections", n)
			}
		})
	}
	t.Run("compressed", func(t *testing.T) {
		wantUnread(t, my, db, q, name, "compressed", commandsOf, itself, func(t *testing.T) { compressedLoad(t, my.Open(t, withCompression)) })
	})
	t.Run("compressed, its own client", func(t *testing.T) {
		wantUnread(t, my, db, q, name, "compressed", commandsOf, itself, func(t *testing.T) {
			my.Client(t, false, strings.Repeat("select 1; select '"+strings.Repeat("x", 1000)+"';\n", 50), "--skip-ssl", "--compress")
		})
	})
}
