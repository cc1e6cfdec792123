package sysbench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// measure reads how many rows the first so many tables have, where no mark has it. Half-made ones are not read.
func (t Target) measure(ctx context.Context, db database, there map[int]table, upTo int) error {
	what, counted := "coalesce(max(id), 0)", false // the last key is at hand, a count reads all of the table
	if t.Engine == "mysql" {
		var err error
		if counted, err = gaps(ctx, db); err != nil {
			return err
		}
		if counted {
			what = "count(*)"
		}
	}
	for n, one := range there {
		if one.ours || !one.whole || n > upTo {
			continue
		}
		one.counted = counted
		err := db.each(ctx, fmt.Sprintf("select %s from %s%d", what, prefix, n), func(scan func(...any) error) error {
			if err := scan(&one.rows); err != nil {
				return &notANumber{err}
			}
			return nil
		})
		if err != nil {
			return unread(fmt.Sprintf("%s%d", prefix, n), err)
		}
		there[n] = one
	}
	return nil
}

// gaps reports whether the server leaves out keys when it makes them, as a node of Galera does for those of the others.
func gaps(ctx context.Context, db database) (bool, error) {
	var step int
	err := db.each(ctx, "select @@auto_increment_increment", func(scan func(...any) error) error { return scan(&step) })
	if err != nil {
		return false, fmt.Errorf("reading auto_increment_increment: %w", err)
	}
	return step > 1, nil
}

// notANumber is a key that is none of sysbench's.
type notANumber struct{ err error }

func (e *notANumber) Error() string { return e.err.Error() }
func (e *notANumber) Unwrap() error { return e.err }

// unread is the error of a table that could not be read. It is final if the table is not one that loadgen can read at
// another time.
func unread(name string, err error) error {
	var pg *pgconn.PgError
	var my *mysql.MySQLError
	var key *notANumber
	// undefined_table: it was dropped meanwhile.
	final := errors.As(err, &key) || errors.As(err, &pg) && strings.HasPrefix(pg.Code, "42") && pg.Code != "42P01" ||
		errors.As(err, &my) && slices.Contains(mysqlFinal, my.Number)
	if !final {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	return adapter.Final(fmt.Errorf("%s exists, and cannot be read (%w): take another database, or let loadgen's user read it if it is sysbench's", name, err))
}

// mysqlFinal are the codes by which a server denies a table, or a column of it, or does not know the column.
var mysqlFinal = []uint16{1142, 1143, 1054}
