package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
)

// breaking is a connection that breaks in the middle of filling the accounts.
type breaking struct {
	conn
	left, inserts int
}

var errBroken = errors.New("broken")

func (b *breaking) Exec(ctx context.Context, statement string, parameters ...any) error {
	if strings.HasPrefix(statement, "insert into loadgen_accounts") {
		if b.left == 0 {
			return errBroken
		}
		b.left--
		b.inserts++
	}
	return b.conn.Exec(ctx, statement, parameters...)
}

// Filling that is interrupted goes on where it was, reports how far it is, and tables grow.
func TestFillingResumes(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		db := testdb.StartPostgres(t)
		fillingResumes(t, "postgres", db.DSN(), generatedBatch, db.Count)
	})
	t.Run("mysql", func(t *testing.T) {
		db := testdb.StartMariaDB(t)
		fillingResumes(t, "mysql", db.DSN(), batch, db.Count)
	})
}

func fillingResumes(t *testing.T, engine, dsn string, size int, count func(string) int) {
	s, err := newServers(engine, []string{dsn})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	filled := prometheus.NewGauge(prometheus.GaugeOpts{Name: "filled"})
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	b := &breaking{conn: c, left: 3}
	if err := makeTables(t.Context(), b, 1, time.Minute, filled, log); !errors.Is(err, errBroken) {
		t.Fatalf("error %v", err)
	}
	if n := count("select count(*) from loadgen_accounts"); n != 3*size {
		t.Errorf("%d accounts after 3 batches", n)
	}
	rows := accountsPerScale + historyRows + tellersPerScale + 1
	if got, want := testutil.ToFloat64(filled), float64(rows-accountsPerScale+3*size)/float64(rows); got != want {
		t.Errorf("filled %v, want %v", got, want)
	}
	for _, scale := range []int{1, 2, 1} {
		before := count("select count(*) from loadgen_accounts")
		b = &breaking{conn: c, left: 1 << 30}
		if err := makeTables(t.Context(), b, scale, time.Minute, filled, log); err != nil {
			t.Fatal(err)
		}
		after := count("select count(*) from loadgen_accounts")
		if after != max(before, scale*accountsPerScale) || b.inserts != (after-before)/size {
			t.Errorf("scale %d: %d accounts, before %d, by %d inserts", scale, after, before, b.inserts)
		}
		if n := count("select count(*) from loadgen_tellers"); n != after/accountsPerScale*tellersPerScale {
			t.Errorf("%d tellers", n)
		}
		if testutil.ToFloat64(filled) != 1 {
			t.Error("not reported as filled")
		}
	}
	if n := count("select max(id) from loadgen_accounts"); n != 2*accountsPerScale {
		t.Errorf("the last account is %d", n)
	}
}

// A working set is as large on PostgreSQL's disk as was requested.
func TestWorkingSet(t *testing.T) {
	db := testdb.StartPostgres(t)
	const size = 30 << 20
	scale := ScaleFor(size)
	s, err := newServers("postgres", []string{db.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	c, _, err := s.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := makeTables(t.Context(), c, scale, time.Minute, prometheus.NewGauge(prometheus.GaugeOpts{Name: "filled"}), slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	if n := db.Count("select pg_relation_size('loadgen_accounts')::int"); n < size || n > size+bytesPerScale*11/10 {
		t.Errorf("scale %d takes %d bytes, want %d", scale, n, size)
	}
	for bytes, want := range map[int64]int{1: 1, bytesPerScale: 1, bytesPerScale + 1: 2, 64 << 30: 5455} {
		if got := ScaleFor(bytes); got != want {
			t.Error(fmt.Sprint(bytes, " bytes are scale ", got, ", want ", want))
		}
	}
}
