package pgbench

import (
	"context"
	"fmt"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// makingTable has the scale of the tables that are being made.
var makingTable = adapter.MakingTable("pgbench")

// makingForm is the comment on makingTable.
const makingForm = "loadgen makes tables of scale %d"

// makingOf reads the scale in that comment, 0 if it is something else.
func makingOf(comment string) (scale int) {
	if !adapter.ReadNote(comment, makingForm, &scale) {
		return 0
	}
	return scale
}

// begin notes that the tables are about to be made.
func (t *Tool) begin(ctx context.Context) error {
	for _, statement := range adapter.Note("postgres", makingTable, fmt.Sprintf(makingForm, t.config.Scale)) {
		if err := t.exec(ctx, "noting in "+makingTable+" that tables are made", statement); err != nil {
			return err
		}
	}
	return nil
}

// done notes that the tables are made, or were not begun.
func (t *Tool) done(ctx context.Context) error {
	return t.exec(ctx, "dropping "+makingTable, adapter.NoNote(makingTable))
}

// sign marks the tables as loadgen's.
func (t *Tool) sign(ctx context.Context) error {
	return t.exec(ctx, "marking pgbench's tables as loadgen's", "comment on table pgbench_branches is '"+madeHere+"'")
}

// exec does something on a connection of its own.
func (t *Tool) exec(ctx context.Context, what, statements string) error {
	db, err := adapter.Connect(ctx, t.config.DSN)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	defer db.Close(context.WithoutCancel(ctx))
	if _, err := db.Exec(ctx, statements); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
