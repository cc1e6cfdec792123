package sysbench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Tables of another size are not measured for those asked for: loadgen's own are made afresh, others are refused and stay.
func TestInitOfAnotherSize(t *testing.T) {
	for engine, start := range map[string]func(t *testing.T) (Target, func(string) int, func(string)){
		"postgres": func(t *testing.T) (Target, func(string) int, func(string)) {
			db := testdb.StartPostgres(t)
			return Target{"postgres", db.DSN()}, db.Count, func(table string) { db.Exec("comment on table " + table + " is null") }
		},
		"mysql": func(t *testing.T) (Target, func(string) int, func(string)) {
			db := testdb.StartMariaDB(t)
			return Target{"mysql", db.DSN()}, db.Count, func(table string) { db.Admin("alter table test." + table + " comment = ''") }
		},
	} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			testkit.Tool(t, "sysbench")
			target, count, disown := start(t)
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
				t.Errorf("%d tables, the first with %d rows; asked was one of 800", tables(), rows(1))
			}
			tool.config.Tables = 3
			if err := tool.Init(t.Context()); err != nil {
				t.Fatal(err)
			}
			if tables() != 3 || rows(3) != 800 {
				t.Errorf("%d tables, the third with %d rows; asked were 3 of 800", tables(), rows(3))
			}
			disown("sbtest2")
			if err := tool.Init(t.Context()); err != nil {
				t.Errorf("tables as asked for: %v", err)
			}
			tool.config.TableSize = 700
			if err := tool.Init(t.Context()); err == nil || !strings.Contains(err.Error(), "sbtest2 exists with a last key of 800") {
				t.Errorf("somebody's table of 800 rows, asked for 700: %v", err)
			}
			if tables() != 3 || rows(1) != 800 || rows(2) != 800 {
				t.Errorf("of 3 tables %d are left, with %d and %d rows", tables(), rows(1), rows(2))
			}
		})
	}
}

// A run is on all tables asked for, and on no key beyond their size.
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

func TestPlan(t *testing.T) {
	ours := func(rows int) table { return table{whole: true, ours: true, rows: rows} }
	other := func(rows int) table { return table{whole: true, rows: rows} }
	for name, c := range map[string]struct {
		script string
		there  map[int]table
		fit    bool
		drop   []int
		err    string
	}{
		"none":                         {there: nil},
		"ours":                         {there: map[int]table{1: ours(10), 2: ours(10)}, fit: true},
		"more than asked for":          {there: map[int]table{1: ours(10), 2: ours(10), 3: other(7)}, fit: true},
		"ours of another size":         {there: map[int]table{1: ours(9), 2: ours(10), 3: ours(9)}, drop: []int{1, 2, 3}},
		"ours that are too large":      {there: map[int]table{1: ours(11), 2: ours(11)}, drop: []int{1, 2}},
		"ours beside another":          {there: map[int]table{1: ours(9), 2: ours(9), 3: other(9)}, drop: []int{1, 2}},
		"a number is missing":          {there: map[int]table{1: ours(10), 3: ours(10)}, drop: []int{1, 3}},
		"somebody's":                   {there: map[int]table{1: other(10), 2: other(10)}, fit: true},
		"somebody's of another size":   {there: map[int]table{1: other(10), 2: other(9)}, err: "loadgen did not make it"},
		"one of somebody's":            {there: map[int]table{1: other(10)}, err: "sbtest1 exists with a last key of 10"},
		"half made":                    {there: map[int]table{1: other(10), 2: {}}, drop: []int{1, 2}},
		"somebody's after inserts":     {script: "oltp_insert", there: map[int]table{1: other(12), 2: other(13)}, fit: true},
		"ours after another test's":    {script: "oltp_insert", there: map[int]table{1: ours(12), 2: ours(12)}, drop: []int{1, 2}},
		"somebody's after deletes":     {script: "oltp_delete", there: map[int]table{1: other(9), 2: other(0)}, fit: true},
		"half made, another's outside": {there: map[int]table{1: {}, 3: other(10)}, drop: []int{1}},
	} {
		config := Config{Script: c.script, Tables: 2, TableSize: 10}
		fit, drop, err := config.plan(c.there)
		slices.Sort(drop)
		if fit != c.fit || !slices.Equal(drop, c.drop) || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: fit %v, drop %v, %v", name, fit, drop, err)
		}
	}
}

func TestMark(t *testing.T) {
	if rows, ok := marked(mark(10_000_000)); !ok || rows != 10_000_000 {
		t.Errorf("a mark is read as %d, %v", rows, ok)
	}
	for _, comment := range []string{"", "made by loadgen", "made by loadgen with x rows", mark(5) + "!", "made by loadgen with 05 rows"} {
		if rows, ok := marked(comment); ok {
			t.Errorf("%q is read as %d rows", comment, rows)
		}
	}
}
