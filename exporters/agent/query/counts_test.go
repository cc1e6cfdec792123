package query

import (
	"context"
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// Every statement is counted once, whatever the protocol, the number of connections and how
// long they live.
func TestQueryCountsPostgres(t *testing.T) {
	q := startQuery(t)
	// Started after the collector: the kernel's process events and the fork of each backend count.
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "counted", "fsync": "off", "max_connections": "120"}, nil)
	querytest.WaitForServer(t, q, "counted")
	exec(t, pg, "create table t (id int primary key, n int); insert into t select i, 0 from generate_series(1, 1000) i")
	const (
		one         = "select n from t where id = 7;\n"
		transaction = "begin;\nupdate t set n = n + 1 where id = :client_id;\ninsert into t values (1001 + :client_id, 1);\ndelete from t where id = 1001 + :client_id;\n"
	)
	for _, c := range []struct {
		name, script string
		args         []string
		want         map[string]uint64
	}{
		{"simple", one, []string{"-M", "simple", "-t", "10000"}, map[string]uint64{"select": 10000}},
		{"extended", one, []string{"-M", "extended", "-t", "10000"}, map[string]uint64{"select": 10000}},
		{"prepared", one, []string{"-M", "prepared", "-t", "10000"}, map[string]uint64{"select": 10000}},
		{"local socket", one, []string{"-M", "prepared", "-t", "10000", "-h", pg.Dir}, map[string]uint64{"select": 10000}},
		{"50 connections simple", one, []string{"-M", "simple", "-c", "50", "-t", "200"}, map[string]uint64{"select": 10000}},
		{"50 connections prepared", one, []string{"-M", "prepared", "-c", "50", "-t", "200"}, map[string]uint64{"select": 10000}},
		{"commits", transaction + "commit;\n", []string{"-M", "prepared", "-c", "10", "-t", "100"},
			map[string]uint64{"begin": 1000, "update": 1000, "insert": 1000, "delete": 1000, "commit": 1000}},
		{"rollbacks", transaction + "rollback;\n", []string{"-M", "extended", "-c", "10", "-t", "100"},
			map[string]uint64{"begin": 1000, "update": 1000, "insert": 1000, "delete": 1000, "rollback": 1000}},
		{"churn", one + one + one + one + one, []string{"-M", "simple", "-C", "-c", "10", "-t", "40"}, map[string]uint64{"select": 2000}},
		{"churn extended", one, []string{"-M", "extended", "-C", "-c", "10", "-t", "50"}, map[string]uint64{"select": 500}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := querytest.During(t, q, "counted", querytest.SumOf(c.want), func() { pg.Bench(t, c.script, c.args...) })
			querytest.WantCounts(t, got, c.want)
			querytest.WantSum(t, got)
		})
	}
	if cost := overheadOf(t, q, "counted"); cost <= 0 {
		t.Errorf("following all that is reported to have cost %v s of CPU time", cost)
	}
}

// overheadOf is what following a server is reported to have cost, in seconds.
func overheadOf(t *testing.T, q *query, server string) float64 {
	t.Helper()
	for _, f := range collectortest.Gather(t, q) {
		for _, m := range f.Metric {
			if f.GetName() == "plumbline_query_overhead_seconds_total" && collectortest.Labels(m)["server"] == server {
				return m.Counter.GetValue()
			}
		}
	}
	t.Fatalf("no overhead of %s", server)
	return 0
}

func TestQueryCountsMariaDB(t *testing.T) {
	my := servertest.StartMariaDB(t)
	// Started before the collector: the threads that are there already count too.
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	if want := "mariadb:" + filepath.Join(my.Dir, "data"); name != want {
		t.Errorf("it is called %q, want %q", name, want)
	}
	root := my.Open(t, nil)
	querytest.During(t, q, name, 3, func() {
		execMySQL(t, root, "create database d")
		execMySQL(t, root, "create table d.t (id int primary key, n int)")
		execMySQL(t, root, "insert into d.t values (7, 0)")
	})
	const one = "select n from d.t where id = ?"
	for _, c := range []struct {
		name        string
		change      func(*mysql.Config)
		connections int
		churn       bool
	}{
		{"prepared", nil, 1, false},
		{"text", func(c *mysql.Config) { c.InterpolateParams = true }, 1, false},
		{"local socket", func(c *mysql.Config) { c.Net, c.Addr = "unix", my.Socket() }, 4, false},
		{"50 connections", func(c *mysql.Config) { c.InterpolateParams = true }, 50, false},
		{"churn", func(c *mysql.Config) { c.InterpolateParams = true }, 10, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			db := my.Open(t, c.change)
			db.SetMaxOpenConns(c.connections)
			db.SetMaxIdleConns(c.connections)
			if c.churn {
				db.SetMaxIdleConns(-1)
			}
			got := querytest.During(t, q, name, 10000, func() {
				var wg sync.WaitGroup
				for range c.connections {
					wg.Go(func() {
						for range 10000 / c.connections {
							var n int
							if err := db.QueryRow(one, 7).Scan(&n); err != nil {
								t.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
			querytest.WantCounts(t, got, map[string]uint64{"select": 10000})
			querytest.WantSum(t, got)
		})
	}
	t.Run("transactions", func(t *testing.T) {
		got := querytest.During(t, q, name, 600, func() {
			for i := range 200 {
				tx, err := root.Begin()
				if err != nil {
					t.Fatal(err)
				}
				if _, err := tx.Exec("update d.t set n = n + 1"); err != nil {
					t.Fatal(err)
				}
				if i%2 == 0 {
					err = tx.Commit()
				} else {
					err = tx.Rollback()
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		querytest.WantCounts(t, got, map[string]uint64{"begin": 200, "update": 200, "commit": 100, "rollback": 100})
	})
}

func exec(t testing.TB, pg *servertest.Postgres, statements string) {
	t.Helper()
	if _, err := pg.Connect(t).Exec(context.Background(), statements); err != nil {
		t.Fatal(err)
	}
}

func execMySQL(t testing.TB, db *sql.DB, statement string) {
	t.Helper()
	if _, err := db.Exec(statement); err != nil {
		t.Fatal(err)
	}
}
