package sysbench

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// final reports whether an error is not retried.
func final(err error) bool {
	tries := 0
	_ = (&adapter.Supervisor{Load: metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{}, metrics.Options{}), Log: slog.New(slog.DiscardHandler)}).
		Retry(context.Background(), "", func(context.Context) error {
			if tries++; tries > 1 {
				return nil
			}
			return err
		})
	return err != nil && tries == 1
}

// A table of a higher number than requested is ignored; one that is in the way and cannot be read is named.
func TestTablesThatCannotBeRead(t *testing.T) {
	for engine, start := range engines {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			target, _, exec := start(t)
			tool := newTool(t, target)
			exec("create table sbtest7 (a int, k int)")
			exec("create index k_7 on sbtest7 (k)")
			if err := tool.Init(t.Context()); err != nil {
				t.Fatalf("with somebody's table of a higher number: %v", err)
			}
			tool.config.Tables = 7
			if err := tool.Init(t.Context()); !final(err) || !strings.Contains(err.Error(), "sbtest7 exists, and cannot be read") {
				t.Errorf("with a table that cannot be read: %v", err)
			}
		})
	}
}

// Where the server leaves out keys, rows are counted.
func TestGapsInKeys(t *testing.T) {
	t.Parallel()
	testkit.Tool(t, "sysbench")
	db := testdb.StartMariaDB(t, "--auto-increment-increment=3")
	tool := newTool(t, Target{"mysql", db.DSN()})
	for range 2 {
		if err := tool.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
		if rows, last := db.Count("select count(*) from sbtest2"), db.Count("select max(id) from sbtest2"); rows != 500 || last <= 500 {
			t.Fatalf("%d rows with a last key of %d", rows, last)
		}
		db.Exec("alter table sbtest2 comment = ''") // as if somebody else had made it
	}
	tool.config.TableSize = 400
	if err := tool.Init(t.Context()); !final(err) || !strings.Contains(err.Error(), "sbtest2 exists with 500 rows, and loadgen did not make it") {
		t.Errorf("of another size: %v", err)
	}
}

func TestUnread(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		final bool
	}{
		"no permission":          {&pgconn.PgError{Code: "42501"}, true},
		"dropped meanwhile":      {&pgconn.PgError{Code: "42P01"}, false},
		"the server shuts down":  {&pgconn.PgError{Code: "57P01"}, false},
		"no permission, MariaDB": {&mysql.MySQLError{Number: 1142}, true},
		"shutdown, MariaDB":      {&mysql.MySQLError{Number: 1053}, false},
		"a lost connection":      {io.ErrUnexpectedEOF, false},
		"a key of letters":       {&notANumber{io.EOF}, true},
	} {
		err := unread("sbtest3", c.err)
		if final(err) != c.final || !strings.Contains(err.Error(), "sbtest3") || !errors.Is(err, c.err) {
			t.Errorf("%s: %v, final %v", name, err, final(err))
		}
	}
}
