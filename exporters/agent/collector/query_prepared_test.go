package collector

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// cacheSize is how many statements pgx prepares on a connection and keeps, unless told otherwise.
const cacheSize = 512

// Each of as many prepared statements as a driver keeps is counted as what it is.
func TestQueryPreparedNames(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "prepared", "autovacuum": "off"}, nil)
	waitForServer(t, q, "prepared")
	want := map[string]uint64{"select": cacheSize / 2, "delete": cacheSize / 2}
	text := func(i int) string {
		if i%2 == 0 {
			return "select 1"
		}
		return "delete from pg_class where false"
	}
	t.Run("as many as pgx keeps", func(t *testing.T) {
		w := dial(t, pg)
		got := during(t, q, "prepared", cacheSize, func() {
			for i := range cacheSize {
				w.send([]byte(message('P', fmt.Sprintf("stmt_%d\x00%s\x00\x00\x00", i, text(i))) + message('S', "")))
				w.ready(1)
			}
			for i := range cacheSize {
				w.send([]byte(bindAndExecute(fmt.Sprintf("stmt_%d", i))))
				w.ready(1)
			}
		})
		wantCounts(t, got, want)
	})
	t.Run("ten times as many, closed after use", func(t *testing.T) {
		w := dial(t, pg)
		got := during(t, q, "prepared", 10*cacheSize, func() {
			for i := range 10 * cacheSize {
				name := fmt.Sprintf("stmt_%d", i)
				w.send([]byte(message('P', name+"\x00"+text(i)+"\x00\x00\x00") + message('S', "")))
				w.ready(1)
				w.send([]byte(bindAndExecute(name)))
				w.ready(1)
				w.send([]byte(message('C', "S"+name+"\x00") + message('S', "")))
				w.ready(1)
			}
		})
		wantCounts(t, got, map[string]uint64{"select": 5 * cacheSize, "delete": 5 * cacheSize})
	})
	t.Run("more than are remembered are counted, and the unknown ones told of", func(t *testing.T) {
		w := dial(t, pg)
		const many = 4000
		got := during(t, q, "prepared", many, func() {
			for i := range many {
				w.send([]byte(message('P', fmt.Sprintf("stmt_%d\x00%s\x00\x00\x00", i, text(i))) + message('S', "")))
				w.ready(1)
			}
			for i := range many {
				w.send([]byte(bindAndExecute(fmt.Sprintf("stmt_%d", i))))
				w.ready(1)
			}
		})
		if got.total() != many || got.counts["other"] == 0 || got.lost["prepared"] != float64(got.counts["other"]) {
			t.Errorf("%v statements of %d, lost %v", got.counts, many, got.lost)
		}
		if known := got.counts["select"] + got.counts["delete"]; known < 1000 {
			t.Errorf("the commands of %d are known", known)
		}
	})
}

// bindAndExecute is the execution of a prepared statement, with its Sync.
func bindAndExecute(name string) string {
	return message('B', "\x00"+name+"\x00\x00\x00\x00\x00\x00\x00") + message('E', "\x00\x00\x00\x00\x00") + message('S', "")
}

func TestQueryPreparedMariaDB(t *testing.T) {
	my := servertest.StartMariaDB(t)
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, func(*mysql.Config) {})
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
