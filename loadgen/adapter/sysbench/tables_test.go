package sysbench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/tests/testkit"
)

// engines start a server each. They return how to count in it and how to run something in its database.
var engines = map[string]func(t *testing.T) (target Target, count func(string) int, exec func(string)){
	"postgres": func(t *testing.T) (Target, func(string) int, func(string)) {
		db := testdb.StartPostgres(t)
		return Target{"postgres", db.DSN()}, db.Count, db.Exec
	},
	"mysql": func(t *testing.T) (Target, func(string) int, func(string)) {
		db := testdb.StartMariaDB(t)
		return Target{"mysql", db.DSN()}, db.Count, db.Exec
	},
}

// Tables of another size are not measured for the requested ones: loadgen's own are made afresh, others are refused and
// stay.
func TestInitOfAnotherSize(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			testkit.Tool(t, "sysbench")
			target, count, exec := start(t)
			disown := func(table string) {
				if engine == "mysql" {
					exec("alter table " + table + " comment = ''")
				} else {
					exec("comment on table " + table + " is null")
				}
			}
			tool := newRig(t, target).tool // two tables of 500 rows
			rows := func(n int) int { return count(fmt.Sprintf("select count(*) from sbtest%d", n)) }
			tables := func() int {
				return count("select count(*) from information_schema.tables where table_name like 'sbtest%'")
			}
			tool.config.Tables, tool.config.TableSize = 1, 800
			if err := tool.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if rows(1) != 800 || tables() != 1 {
				t.Errorf("%d tables, the first with %d rows; want one of 800", tables(), rows(1))
			}
			tool.config.Tables = 3
			if err := tool.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tables() != 3 || rows(3) != 800 {
				t.Errorf("%d tables, the third with %d rows; want 3 of 800", tables(), rows(3))
			}
			disown("sbtest2")
			if err := tool.Init(t.Context()); err != nil {
				t.Errorf("tables as configured: %v", err)
			}
			tool.config.TableSize = 700
			if err := tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "sbtest2 exists with a last key of 800") {
				t.Errorf("somebody's table of 800 rows, configured 700: %v", err)
			}
			if tables() != 3 || rows(1) != 800 || rows(2) != 800 {
				t.Errorf("of 3 tables %d are left, with %d and %d rows", tables(), rows(1), rows(2))
			}
		})
	}
}

// A run is on all requested tables, and on no key beyond their size.
func TestRunIsOnTheTables(t *testing.T) {
	t.Parallel()
	testkit.Tool(t, "sysbench")
	db := testdb.StartPostgres(t)
	r := newRig(t, Target{"postgres", db.DSN()}) // two tables of 500 rows
	// A row's version is that of the transaction that wrote it.
	versions := func() int { return db.Count("select count(distinct xmin::text) from sbtest2") }
	before := versions()
	stop := testload.Start(t, func(ctx context.Context) { r.tool.Once(ctx) })
	testload.Await(t, r.load, 60)
	stop()
	if after := versions(); after <= before {
		t.Errorf("the second table's rows are of %d transactions, before the run of %d", after, before)
	}
	if last := db.Count("select greatest((select max(id) from sbtest1), (select max(id) from sbtest2))"); last != 500 {
		t.Errorf("the last key is %d, the tables have 500 rows", last)
	}
}

// Tables that loadgen did not make are not dropped, whole or not; the rest of its own interrupted call is made afresh.
func TestInitLeavesOthers(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			sysbench := testkit.Tool(t, "sysbench")
			target, count, exec := start(t)
			noted := func() int {
				return count("select count(*) from information_schema.tables where table_name like 'plumbline%'")
			}
			for _, statement := range []string{"create table sbtest1 (id int primary key, k int)", "insert into sbtest1 values (1, 1)"} {
				exec(statement)
			}
			tool := newTool(t, target)
			if err := tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "sbtest1 exists without its secondary index") {
				t.Errorf("with somebody's half-made table: %v", err)
			}
			if count("select count(*) from sbtest1") != 1 || noted() != 0 {
				t.Error("somebody's half-made table was made afresh")
			}
			exec("drop table sbtest1")

			// The tables are made, and the call is interrupted before they are marked.
			tool.config.Path = filepath.Join(t.TempDir(), "sysbench")
			if err := os.WriteFile(tool.config.Path, []byte("#!/bin/sh\n"+sysbench+" \"$@\"\nexit 1\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := tool.Init(t.Context()); err == nil {
				t.Error("with a sysbench that fails there is no error")
			}
			if noted() != 1 {
				t.Error("an interrupted call is not noted")
			}
			tool.config.Path = sysbench
			again := func(rows int) {
				t.Helper()
				tool.config.TableSize = rows
				if err := tool.Init(t.Context()); err != nil {
					t.Error(err)
				}
				if got := count("select count(*) from sbtest2"); got != rows || noted() != 0 {
					t.Errorf("%d rows, want %d, %d notes", got, rows, noted())
				}
			}
			again(500)
			again(400) // they are marked: else this would be refused

			tool.config.Path = "/nowhere/sysbench"
			tool.config.TableSize = 300
			if err := tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "/nowhere/sysbench") || noted() != 0 {
				t.Errorf("without a program: %v, %d notes", err, noted())
			}
		})
	}
}

func TestPlan(t *testing.T) {
	ours := func(rows int) table { return table{whole: true, ours: true, rows: rows} }
	after := func(test string) table { return table{whole: true, ours: true, rows: 10, changed: test} }
	other := func(rows int) table { return table{whole: true, rows: rows} }
	for name, c := range map[string]struct {
		script string
		there  map[int]table
		making making
		fit    bool
		drop   []int
		err    string
	}{
		"none":                         {there: nil},
		"ours":                         {there: map[int]table{1: ours(10), 2: ours(10)}, fit: true},
		"more than configured":         {there: map[int]table{1: ours(10), 2: ours(10), 3: other(7)}, fit: true},
		"ours of another size":         {there: map[int]table{1: ours(9), 2: ours(10), 3: ours(9)}, drop: []int{1, 2, 3}},
		"ours that are too large":      {there: map[int]table{1: ours(11), 2: ours(11)}, drop: []int{1, 2}},
		"ours beside another":          {there: map[int]table{1: ours(9), 2: ours(9), 3: other(9)}, drop: []int{1, 2}},
		"a number is missing":          {there: map[int]table{1: ours(10), 3: ours(10)}, drop: []int{1, 3}},
		"somebody's":                   {there: map[int]table{1: other(10), 2: other(10)}, fit: true},
		"somebody's of another size":   {there: map[int]table{1: other(10), 2: other(9)}, err: "loadgen did not make it"},
		"one of somebody's":            {there: map[int]table{1: other(10)}, err: "sbtest1 exists with a last key of 10"},
		"somebody's half-made":         {there: map[int]table{1: other(10), 2: {}}, err: "sbtest2 exists without its secondary index"},
		"half made":                    {there: map[int]table{1: other(10), 2: {}}, making: making{2, 10}, drop: []int{1, 2}},
		"half made of another call":    {there: map[int]table{1: other(7), 2: {}, 3: {}}, making: making{3, 7}, drop: []int{1, 2, 3}},
		"half made of a smaller call":  {there: map[int]table{1: other(7), 2: {}}, making: making{1, 7}, err: "sbtest2 exists without"},
		"somebody's after a half made": {there: map[int]table{1: other(8), 2: {}}, making: making{2, 7}, err: "sbtest1 exists with a last key of 8"},
		"somebody's after inserts":     {script: "oltp_insert", there: map[int]table{1: other(12), 2: other(13)}, fit: true},
		"ours after another test's":    {script: "oltp_insert", there: map[int]table{1: ours(12), 2: ours(12)}, drop: []int{1, 2}},
		"ours after inserts":           {there: map[int]table{1: after("oltp_insert"), 2: ours(10)}, drop: []int{1, 2}},
		"ours after its own inserts":   {script: "oltp_insert", there: map[int]table{1: after("oltp_insert"), 2: after("oltp_insert")}, fit: true},
		"ours after several":           {script: "oltp_insert", there: map[int]table{1: after(others), 2: ours(10)}, drop: []int{1, 2}},
		"somebody's after deletes":     {script: "oltp_delete", there: map[int]table{1: other(9), 2: other(0)}, fit: true},
		"half made, another's outside": {there: map[int]table{1: {}, 3: other(10)}, making: making{2, 10}, drop: []int{1}},
	} {
		config := Config{Script: c.script, Tables: 2, TableSize: 10}
		fit, drop, err := config.plan(c.there, c.making)
		if fit != c.fit || !slices.Equal(drop, c.drop) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: fit %v, drop %v, %v", name, fit, drop, err)
		}
	}
}

// Tables are made though they cannot be marked; they are somebody's then.
func TestInitWithoutMarks(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	db.ForbidComments("%sbtest%")
	tool := newTool(t, Target{"postgres", db.DSN()})
	for range 2 {
		if err := tool.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := db.Count("select count(*) from pg_tables where tablename like 'plumbline%'"); n != 0 {
			t.Errorf("%d notes that tables are made", n)
		}
	}
	tool.config.TableSize = 400
	if err := tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "loadgen did not make it") {
		t.Errorf("of tables that are not marked, with another size configured: %v", err)
	}
}

// What cuts idle connections while sysbench works, such as a proxy, does not keep tables from being marked.
func TestInitWithIdleConnectionsCut(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	tool := newTool(t, Target{"postgres", db.DSN()})
	sysbench := tool.config.Path
	tool.config.Path = filepath.Join(t.TempDir(), "sysbench")
	cut := testkit.Tool(t, "psql") + " '" + db.DSN() + "' -c \"select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'loadgen'\""
	if err := os.WriteFile(tool.config.Path, []byte("#!/bin/sh\n"+cut+" >&2\nexec "+sysbench+" \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := tool.Init(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := db.Count("select count(*) from pg_class where obj_description(oid, 'pg_class') = '" + mark(500, "") + "'"); n != 2 {
		t.Errorf("%d of 2 tables are marked", n)
	}
}

// A note of something else covers nothing.
func TestMaking(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	target := Target{"postgres", db.DSN()}
	c, err := target.open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	read := func() making {
		m, err := target.making(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	want := making{3, 10_000_000}
	for range 2 {
		if err := target.begin(t.Context(), c, want); err != nil {
			t.Fatal(err)
		}
	}
	if m := read(); m != want {
		t.Errorf("%v is read as %v", want, m)
	}
	for _, comment := range []string{"", "loadgen makes 3 tables of x rows", want.String() + " or so", "loadgen makes 03 tables of 7 rows"} {
		db.Exec("comment on table " + makingTable + " is '" + comment + "'")
		if m := read(); m != (making{}) {
			t.Errorf("%q is read as %v", comment, m)
		}
	}
}

func TestMark(t *testing.T) {
	for _, changed := range []string{"", "oltp_insert", others} {
		if rows, by, ok := marked(mark(10_000_000, changed)); !ok || rows != 10_000_000 || by != changed {
			t.Errorf("a mark of tables changed by %q is read as %d, %q, %v", changed, rows, by, ok)
		}
	}
	for _, comment := range []string{"", "made by loadgen", "made by loadgen with x rows", mark(5, "") + "!", mark(5, "") + ", changed by ",
		mark(5, "oltp_insert") + " or so", "made by loadgen with 05 rows"} {
		if rows, _, ok := marked(comment); ok {
			t.Errorf("%q is read as %d rows", comment, rows)
		}
	}
}

// Loadgen's tables that a test changed are not measured by another test, but made afresh.
func TestTablesThatChanged(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			target, count, _ := start(t)
			r := newRig(t, target)
			rows := func() int { return count("select count(*) from sbtest1") }
			for _, script := range []string{"oltp_insert", "oltp_delete"} {
				r.tool.config.Script, r.tool.noted = script, false
				if err := r.tool.Init(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := rows(); n != 500 {
					t.Errorf("%s begins with %d rows, want 500", script, n)
				}
				before := r.load.Tally().Completed
				stop := testload.Start(t, func(ctx context.Context) { r.tool.Once(ctx) })
				testload.Await(t, r.load, before+60)
				stop()
				changed := rows()
				if err := r.tool.Init(t.Context()); err != nil {
					t.Fatal(err)
				}
				if n := rows(); n != changed || n == 500 {
					t.Errorf("%s leaves %d rows of 500, and begins again with %d", script, changed, n)
				}
			}
			r.tool.config.Script = "oltp_read_only"
			if err := r.tool.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if n := rows(); n != 500 {
				t.Errorf("after inserts and deletes there are %d rows, want 500", n)
			}
		})
	}
}
