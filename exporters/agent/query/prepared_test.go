package query

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// cacheSize is how many statements pgx prepares on a connection and keeps, by default.
const cacheSize = 512

// Each of as many prepared statements as a driver keeps is counted as what it is.
func TestQueryPreparedNames(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "prepared", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "prepared")
	want := map[string]uint64{"select": cacheSize / 2, "delete": cacheSize / 2}
	t.Run("as many as pgx keeps", func(t *testing.T) {
		w := dial(t, pg)
		got := querytest.During(t, q, "prepared", cacheSize, func() {
			prepareAndExecute(w, "stmt", cacheSize)
		})
		querytest.WantCounts(t, got, want)
	})
	t.Run("ten times as many, closed after use", func(t *testing.T) {
		w := dial(t, pg)
		got := querytest.During(t, q, "prepared", 10*cacheSize, func() {
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
		querytest.WantCounts(t, got, map[string]uint64{"select": 5 * cacheSize, "delete": 5 * cacheSize})
	})
	t.Run("new ones after those before were taken back in SQL", func(t *testing.T) {
		const rounds, names = 10, 500
		w := dial(t, pg)
		got := querytest.During(t, q, "prepared", rounds*(names+1), func() {
			for round := range rounds {
				prepareAndExecute(w, fmt.Sprintf("stmt_%d", round), names)
				w.send([]byte(message('Q', "discard all\x00")))
				w.ready(1)
			}
		})
		querytest.WantCounts(t, got, map[string]uint64{"select": rounds * names / 2, "delete": rounds * names / 2, "other": rounds})
	})
	t.Run("one that was prepared unseen has the command that the answer's end names", func(t *testing.T) {
		w := dial(t, pg)
		w.query("prepare hidden as select 1")
		got := querytest.During(t, q, "prepared", 4, func() {
			w.send([]byte(bindAndExecute("hidden")))
			w.ready(1)
			// Of more messages than are read in one go.
			bind, execute := message('B', "\x00hidden\x00\x00\x00\x00\x00\x00\x00"), message('E', "\x00\x00\x00\x00\x00")
			w.send([]byte(bind + strings.Repeat(message('D', "P\x00"), 30) + execute + message('S', "")))
			w.ready(1)
			// The server sends the command before the end.
			w.send([]byte(bind + execute + message('H', "") + message('S', "")))
			w.ready(1)
			w.send([]byte(bindAndExecute("missing")))
			w.ready(1)
		})
		if got.Counts["select"] != 2 || got.Counts["other"] != 2 || got.Unknown != 2 || len(got.Lost) != 0 {
			t.Errorf("%v, %v of unknown command, lost %v; want 2 selects, and 2 others of unknown command", got.Counts, got.Unknown, got.Lost)
		}
	})
	t.Run("more than are remembered", func(t *testing.T) {
		w := dial(t, pg)
		const many = 4000
		got := querytest.During(t, q, "prepared", many, func() {
			prepareAndExecute(w, "stmt", many)
		})
		querytest.WantCounts(t, got, map[string]uint64{"select": many / 2, "delete": many / 2})
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
	got := querytest.During(t, q, name, 2*cacheSize, func() {
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
	querytest.WantCounts(t, got, map[string]uint64{"select": cacheSize, "delete": cacheSize})
}
