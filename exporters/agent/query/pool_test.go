package query

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// A pool of few threads serves many connections, each statement by whichever thread is free; a commit may even be
// answered by another thread than the one that began it. Every statement is counted once, as what it is, and no time is
// lost.
func TestQueryThreadPool(t *testing.T) {
	my := servertest.StartMariaDB(t, "--thread-handling=pool-of-threads", "--thread-pool-size=2")
	q := startQuery(t)
	name := defaultName(t, q, my.PID)
	db := my.Open(t, nil)
	const clients, rounds = 24, 100
	db.SetMaxOpenConns(clients)
	db.SetMaxIdleConns(clients)
	querytest.During(t, q, name, 2, func() {
		execMySQL(t, db, "create or replace database d")
		execMySQL(t, db, "create table d.t (id int primary key, n int) engine=innodb")
	})
	querytest.During(t, q, name, clients, func() {
		for i := range clients {
			execMySQL(t, db, fmt.Sprintf("insert into d.t values (%d, 0)", i))
		}
	})
	// Connections are kept; each prepares once, and its executions go to other threads than the one that prepared.
	got := querytest.During(t, q, name, clients*rounds*5, func() {
		var wg sync.WaitGroup
		for i := range clients {
			wg.Go(func() { poolClient(t, my, i, rounds) })
		}
		wg.Wait()
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 2 * clients * rounds, "begin": clients * rounds, "update": clients * rounds, "commit": clients * rounds})
	querytest.WantSum(t, got)
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

// A thread that reads two commits, which others answer in either order, has nothing under way; and when a client
// leaves, no time is added to what was counted before.
func TestQueryThreadPoolHandsOver(t *testing.T) {
	pool := servertest.StartPool(t)
	q := startQuery(t)
	name := defaultName(t, q, pool.PID)
	for _, c := range []struct {
		name      string
		first     int
		collected bool
	}{
		{"the older one first", 1, false},
		{"the younger one first", 2, false},
		// A reader meanwhile sees the first thread's time on a CPU, which later is a wait of the second one: apart from
		// the sums.
		{"the older one first, collected meanwhile", 1, true},
		{"the younger one first, collected meanwhile", 2, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := querytest.During(t, q, name, 2, func() { handOver(t, pool, c.first, c.collected, q, name) })
			querytest.WantCounts(t, got, map[string]uint64{"commit": 2})
			if !c.collected {
				querytest.WantSum(t, got)
			}
		})
	}
}

// handOver lets one thread of a pool read two commits, and another one answer them, the younger one or the older one
// first.
func handOver(t *testing.T, pool *servertest.Pool, first int, collected bool, q *query, name string) {
	t.Helper()
	clients := map[int]net.Conn{1: pool.Dial(0, 1), 2: pool.Dial(0, 2)}
	for i := range 2 {
		if _, err := clients[i+1].Write([]byte("\x07\x00\x00\x00\x03commit")); err != nil {
			t.Fatal(err)
		}
		pool.Do(1, "read", i+1)
	}
	pool.Do(2, "answer", first)
	if collected {
		// The thread is at the younger one only.
		wantGauge(t, q, name, "plumbline_query_in_flight wait", is(float64(2-first)))
	}
	pool.Do(2, "answer", 3-first)
	pool.Do(2, "rest", 0)
	if collected {
		wantGauge(t, q, name, "plumbline_query_in_flight wait", is(0))
	}
	for i, client := range clients {
		client.Close()
		pool.Do(0, "close", i)
	}
	// It wakes, finds nothing to do and goes back to sleep.
	pool.Do(1, "rest", 0)
}
