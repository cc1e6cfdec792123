package sysbench

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// prefix is what sysbench's tables are called, a number after it.
const prefix = "sbtest"

// table is one of sysbench's in the database.
type table struct {
	// whole: it has its secondary index, which sysbench makes last.
	whole bool
	// ours: loadgen made it, with so many rows.
	ours bool
	// changed is the test that may have changed how many they are since then, if there was one.
	changed string
	// rows are those it was made with, or else its last key, or those that were counted.
	rows    int
	counted bool
}

// markForm is the comment on a table that loadgen made, changedForm what is added before a test that changes its number
// of rows. A table that is made afresh by hand has none.
const (
	markForm    = "made by loadgen with %d rows"
	changedForm = ", changed by %s"
)

// others stands for several tests that changed a table.
const others = "several"

func mark(rows int, changed string) string {
	text := fmt.Sprintf(markForm, rows)
	if changed != "" {
		text += fmt.Sprintf(changedForm, changed)
	}
	return text
}

// marked reads a mark.
func marked(comment string) (rows int, changed string, ok bool) {
	if n, _ := fmt.Sscanf(comment, markForm+changedForm, &rows, &changed); n == 0 || comment != mark(rows, changed) {
		return 0, "", false
	}
	return rows, changed, true
}

// listTables lists the tables of the engine's current schema: their names, whether they have the index, their comments.
func (t Target) listTables() string {
	if t.Engine == "mysql" {
		return `select t.table_name, exists(select 1 from information_schema.statistics s where s.table_schema = t.table_schema
			and s.table_name = t.table_name and s.index_name like 'k\_%'), t.table_comment
			from information_schema.tables t where t.table_schema = database() and t.table_name like '` + prefix + `%'`
	}
	return `select c.relname, exists(select from pg_index x join pg_class i on i.oid = x.indexrelid where x.indrelid = c.oid
		and i.relname like 'k\_%'), coalesce(obj_description(c.oid, 'pg_class'), '')
		from pg_class c join pg_namespace n on n.oid = c.relnamespace
		where n.nspname = current_schema() and c.relkind in ('r', 'p') and c.relname like '` + prefix + `%'`
}

// list returns sysbench's tables by their numbers, with the rows of those that are marked.
func (t Target) list(ctx context.Context, db database) (map[int]table, error) {
	there := map[int]table{}
	err := db.each(ctx, t.listTables(), func(scan func(...any) error) error {
		var name, comment string
		var one table
		if err := scan(&name, &one.whole, &comment); err != nil {
			return err
		}
		digits := strings.TrimPrefix(name, prefix)
		n, err := strconv.Atoi(digits)
		if err != nil || n < 1 || strconv.Itoa(n) != digits {
			return nil // somebody's table of a like name
		}
		one.rows, one.changed, one.ours = marked(comment)
		there[n] = one
		return nil
	})
	return there, err
}

// plan compares the tables with the requested ones. They fit, or those to be dropped before they are made: loadgen's
// own and the rest of an interrupted call. What may be somebody else's is an error, whole or not.
func (c Config) plan(there map[int]table, interrupted making) (fit bool, drop []int, err error) {
	fit = true
	for n := 1; n <= c.Tables; n++ {
		one, ok := there[n]
		fit = fit && ok && one.whole && c.fits(one)
	}
	if fit {
		return true, nil, nil
	}
	for _, n := range slices.Sorted(maps.Keys(there)) {
		one := there[n]
		switch {
		case one.ours, interrupted.covers(n, one):
			drop = append(drop, n)
		case n > c.Tables:
		case !one.whole:
			return false, nil, fmt.Errorf("%s%d exists without its secondary index, and loadgen did not make it: its making may not be over, or was "+
				"with --create_secondary=off; wait for its end, take another database, or drop it (sysbench %s cleanup)", prefix, n, c.Script)
		case err == nil:
			err = fmt.Errorf("%s%d exists with %s, and loadgen did not make it; configured are %d tables of %d rows: "+
				"configure as many as there are, take another database, or drop the tables (sysbench %s cleanup)", prefix, n, one.size(), c.Tables, c.TableSize, c.Script)
		}
	}
	if err != nil {
		return false, nil, err
	}
	return false, drop, nil
}

// fits reports whether a table has the requested rows. One of loadgen's that a test changed is for the same test again,
// as after a restart. If a table's original size is not known, its last key means nothing to a test that changes how
// many rows there are.
func (c Config) fits(one table) bool {
	if one.ours {
		return one.rows == c.TableSize && (one.changed == "" || one.changed == c.Script)
	}
	return one.rows == c.TableSize || c.changes()
}

// changes reports whether the test changes how many rows there are.
func (c Config) changes() bool { return c.Script == "oltp_insert" || c.Script == "oltp_delete" }

// size returns a table's rows.
func (t table) size() string {
	if t.counted {
		return fmt.Sprintf("%d rows", t.rows)
	}
	return fmt.Sprintf("a last key of %d", t.rows)
}

// drop drops tables.
func (t Target) drop(ctx context.Context, db database, numbers []int) error {
	for _, n := range numbers {
		if err := db.exec(ctx, fmt.Sprintf("drop table %s%d", prefix, n)); err != nil {
			return fmt.Errorf("dropping %s%d: %w", prefix, n, err)
		}
	}
	return nil
}

// sign marks tables that were just made as loadgen's.
func (t Target) sign(ctx context.Context, db database, numbers []int, rows int) error {
	for _, n := range numbers {
		if err := t.comment(ctx, db, n, mark(rows, "")); err != nil {
			return fmt.Errorf("marking %s%d as loadgen's: %w", prefix, n, err)
		}
	}
	return nil
}

// comment sets a table's comment.
func (t Target) comment(ctx context.Context, db database, n int, text string) error {
	statement := "comment on table %s%d is '%s'"
	if t.Engine == "mysql" {
		statement = "alter table %s%d comment = '%s'"
	}
	return db.exec(ctx, fmt.Sprintf(statement, prefix, n, text))
}
