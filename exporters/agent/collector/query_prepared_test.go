package collector

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// cacheSize is how many statements pgx prepares on a connection and keeps, by default.
const cacheSize = 512

// Each of as many prepared statements as a driver keeps is counted as what it is.
func TestQueryPreparedNames(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "prepared", "autovacuum": "off"}, nil)
	waitForServer(t, q, "prepared")
	want := map[string]uint64{"select": cacheSize / 2, "delete": cacheSize / 2}
	t.Run("as many as pgx keeps", func(t *testing.T) {
		w := dial(t, pg)
		got := during(t, q, "prepared", cacheSize, func() {
			prepareAndExecute(w, "stmt", cacheSize)
		})
		wantCounts(t, got, want)
	})
	t.Run("ten times as many, closed after use", func(t *testing.T) {
		w := dial(t, pg)
		got := during(t, q, "prepared", 10*cacheSize, func() {
			for i := range 10 * cacheSize {
				name := fmt.Sprintf("stmt_%d", i)
				w.send([]byte(message('P', name+"\x00"+textOf(i)+"\x00\x00\x00") + message('S', "")))
				w.ready(1)
				w.send([]byte(bindAndExecute(name)))
				w.ready(1)
				w.send([]byte(message('C', "S"+name+"\x00") + message('S', "")))
				w.ready(1)
			}
		})
		wantCounts(t, got, map[string]uint64{"select": 5 * cacheSize, "delete": 5 * cacheSize})
	})
	t.Run("new ones after those before were taken back in SQL", func(t *testing.T) {
		const rounds, names = 10, 500
		w := dial(t, pg)
		got := during(t, q, "prepared", rounds*(names+1), func() {
			for round := range rounds {
				prepareAndExecute(w, fmt.Sprintf("stmt_%d", round), names)
				w.send([]byte(message('Q', "discard all\x00")))
				w.ready(1)
			}
		})
		wantCounts(t, got, map[string]uint64{"select": rounds * names / 2, "delete": rounds * names / 2, "other": rounds})
	})
	t.Run("one execution of an unknown one is told of once", func(t *testing.T) {
		w := dial(t, pg)
		w.send([]byte(message('Q', "prepare hidden as select 1\x00")))
		w.ready(1)
		got := during(t, q, "prepared", 2, func() {
			w.send([]byte(bindAndExecute("hidden")))
			w.ready(1)
			// Of more messages than are looked at in one go.
			w.send([]byte(message('B', "\x00hidden\x00\x00\x00\x00\x00\x00\x00") + message('D', "P\x00") +
				message('E', "\x00\x00\x00\x00\x00") + strings.Repeat(message('H', ""), 30) + message('S', "")))
			w.ready(1)
		})
		if got.counts["other"] != 2 || got.unknown != 2 {
			t.Errorf("%v, %v of unknown command, want 2 of 2", got.counts, got.unknown)
		}
	})
	t.Run("more than are remembered are counted, and the unknown ones told of", func(t *testing.T) {
		w := dial(t, pg)
		const many = 4000
		got := during(t, q, "prepared", many, func() {
			prepareAndExecute(w, "stmt", many)
		})
		if got.total() != many || got.counts["other"] == 0 || got.unknown != float64(got.counts["other"]) || len(got.lost) != 0 {
			t.Errorf("%v statements of %d, %v of unknown command, lost %v", got.counts, many, got.unknown, got.lost)
		}
		if known := got.counts["select"] + got.counts["delete"]; known < 1000 {
			t.Errorf("the commands of %d are known", known)
		}
	})
}

// textOf is the text of the statement with a number.
func textOf(i int) string {
	if i%2 == 0 {
		return "select 1"
	}
	return "delete from pg_class where false"
}

// prepareAndExecute prepares statements that are called PREFIX_NUMBER, and then executes each of them once.
func prepareAndExecute(w *wire, prefix string, statements int) {
	w.t.Helper()
	for i := range statements {
		w.send([]byte(message('P', fmt.Sprintf("%s_%d\x00%s\x00\x00\x00", prefix, i, textOf(i))) + message('S', "")))
		w.ready(1)
	}
	for i := range statements {
		w.send([]byte(bindAndExecute(fmt.Sprintf("%s_%d", prefix, i))))
		w.ready(1)
	}
}

// bindAndExecute is the execution of a prepared statement, with its Sync.
func bindAndExecute(name string) string {
	return message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")
}

// MariaDB's prepared statements have numbers, which are not used again on a connection.
func TestQueryPreparedMariaDB(t *testing.T) {
	my := servertest.StartMariaDB(t)
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, nil)
	c, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	got := during(t, q, name, 2*cacheSize, func() {
		for range 2 { // the second time, the first ones are closed
			var statements []*sql.Stmt
			for i := range cacheSize {
				text := "select 1"
				if i%2 == 1 {
					text = "delete from mysql.db where false"
				}
				s, err := c.PrepareContext(context.Background(), text)
				if err != nil {
					t.Fatal(err)
				}
				statements = append(statements, s)
			}
			for _, s := range statements {
				if _, err := s.Exec(); err != nil {
					t.Fatal(err)
				}
				s.Close()
			}
		}
	})
	wantCounts(t, got, map[string]uint64{"select": cacheSize, "delete": cacheSize})
}
