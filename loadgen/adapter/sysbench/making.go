package sysbench

import (
	"context"
	"fmt"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// makingTable names the tables that are being made.
var makingTable = adapter.MakingTable("sysbench")

// making are the tables that loadgen makes, or made until it was interrupted: the first so many, of so many rows.
type making struct{ tables, rows int }

// making are the requested tables.
func (c Config) making() making { return making{c.Tables, c.TableSize} }

// makingForm is the comment on makingTable.
const makingForm = "loadgen makes %d tables of %d rows"

// covers reports whether a table is of an interrupted call. One that is whole and of another size is not.
func (m making) covers(n int, one table) bool {
	return !one.ours && n <= m.tables && (!one.whole || one.rows == m.rows)
}

// making reads what an earlier call was making.
func (t Target) making(ctx context.Context, db database) (m making, err error) {
	query := "select coalesce(obj_description(c.oid, 'pg_class'), '') from pg_class c join pg_namespace n on n.oid = c.relnamespace " +
		"where n.nspname = current_schema() and c.relname = '" + makingTable + "'"
	if t.Engine == "mysql" {
		query = "select table_comment from information_schema.tables where table_schema = database() and table_name = '" + makingTable + "'"
	}
	err = db.each(ctx, query, func(scan func(...any) error) error {
		var comment string
		if err := scan(&comment); err != nil {
			return err
		}
		var read making
		if adapter.ReadNote(comment, makingForm, &read.tables, &read.rows) {
			m = read
		}
		return nil
	})
	return m, err
}

func (m making) String() string { return fmt.Sprintf(makingForm, m.tables, m.rows) }

// begin notes that tables are about to be made.
func (t Target) begin(ctx context.Context, db database, m making) error {
	for _, statement := range adapter.Note(t.Engine, makingTable, m.String()) {
		if err := db.exec(ctx, statement); err != nil {
			return fmt.Errorf("noting in %s that tables are made: %w", makingTable, err)
		}
	}
	return nil
}

// done notes that the tables are made, or were not begun.
func (t Target) done(ctx context.Context, db database) error {
	if err := db.exec(ctx, adapter.NoNote(makingTable)); err != nil {
		return fmt.Errorf("dropping %s: %w", makingTable, err)
	}
	return nil
}
