package collector

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// A pool of few threads serves many connections, each statement by whichever thread is free; a commit may even be answered by
// another thread than the one that began it. Every statement is counted once, as what it is, and no time is lost.
func TestQueryThreadPool(t *testing.T) {
	my := servertest.StartMariaDB(t, "--thread-handling=pool-of-threads", "--thread-pool-size=2")
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, nil)
	const clients, rounds = 24, 100
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	during(t, q, name, 2, func() {
		execMySQL(t, db, "create or replace database d")
		execMySQL(t, db, "create table d.t (id int primary key, n int) engine=innodb")
	})
	during(t, q, name, clients, func() {
		for i := range clients {
			execMySQL(t, db, fmt.Sprintf("insert into d.t values (%d, 0)", i))
		}
	})
	// Connections are kept; each prepares once, and its executions go to other threads than the one that prepared.
	got := during(t, q, name, clients*rounds*5, func() {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { poolClient(t, my, i, rounds) })
		}
		wg.Wait()
	})
	wantCounts(t, got, map[string]uint64{"select": 2 * clients * rounds, "begin": clients * rounds, "update": clients * rounds, "commit": clients * rounds})
	wantSum(t, got)
	wantGauge(t, q, name, "plumbline_query_in_flight wait", func(n float64) bool { return n == 0 })
	wantGauge(t, q, name, "plumbline_query_idle_in_transaction", func(n float64) bool { return n == 0 })
}

// poolClient makes a text statement, a prepared one and a transaction, again and again on one connection.
func poolClient(t *testing.T, my *servertest.MariaDB, id, rounds int) {
	db := my.Open(t, nil)
	defer db.Close()
	ctx := context.Background()
	c, err := db.Conn(ctx)
	if err != nil {
		t.Error(err)
		return
	}
	defer c.Close()
	prepared, err := c.PrepareContext(ctx, "select n from d.t where id = ?")
	if err != nil {
		t.Error(err)
		return
	}
	for range rounds {
		var n int
		if err := prepared.QueryRowContext(ctx, id).Scan(&n); err != nil {
			t.Error(err)
			return
		}
		for _, text := range []string{"select 1", "begin", fmt.Sprintf("update d.t set n = n + 1 where id = %d", id), "commit"} {
			if _, err := c.ExecContext(ctx, text); err != nil {
				t.Error(err)
				return
			}
		}
	}
}
