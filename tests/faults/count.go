package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/testkit"
)

// ledger takes rows out of a table of a class's database, one after the other, each in a transaction of its own, and
// records which of them the database has acknowledged. Nobody else in the lab makes a DELETE, so that the agent's count
// of them is of these alone.
type ledger struct {
	l     *lab
	class string

	mu sync.Mutex
	// next is the row to take next; acknowledged ones are gone for good, of unsure ones (the
	// connection broke) it is not known.
	next         int
	acknowledged int
	unsure       map[int]bool

	stop context.CancelFunc
	done chan struct{}
}

// ledgerRows is more than a fault has time for.
const ledgerRows = 60_000

// openLedger makes the table.
func (l *lab) openLedger(class string) (*ledger, error) {
	c, err := l.connect(l.ctx, class)
	if err != nil {
		return nil, err
	}
	defer c.Close(l.ctx)
	for _, s := range []string{"drop table if exists ledger", "create table ledger (id int primary key)",
		fmt.Sprintf("insert into ledger select generate_series(1, %d)", ledgerRows)} {
		if _, err := c.Exec(l.ctx, s); err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
	}
	return &ledger{l: l, class: class, next: 1, unsure: map[int]bool{}}, nil
}

// begin starts to take rows.
func (g *ledger) begin() {
	ctx, stop := context.WithCancel(g.l.ctx)
	g.stop, g.done = stop, make(chan struct{})
	go func() {
		defer close(g.done)
		every := time.NewTicker(20 * time.Millisecond)
		defer every.Stop()
		for ctx.Err() == nil {
			g.work(ctx, every)
		}
	}()
}

// work takes rows on one connection until that fails.
func (g *ledger) work(ctx context.Context, every *time.Ticker) {
	connecting, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := g.l.connect(connecting, g.class)
	if err != nil {
		select {
		case <-ctx.Done():
		case <-every.C:
		}
		return
	}
	defer c.Close(context.WithoutCancel(ctx))
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		g.mu.Lock()
		id := g.next
		g.next++
		g.mu.Unlock()
		// Not the context: what is under way is finished, so that it is known. In the simple
		// protocol, so that an agent that comes later knows what it is, too.
		late, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		_, err := c.Exec(late, "delete from ledger where id = $1", pgx.QueryExecModeSimpleProtocol, id)
		cancel()
		g.mu.Lock()
		if err == nil {
			g.acknowledged++
		} else {
			g.unsure[id] = true
		}
		g.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// goesOn awaits another n acknowledged transactions, and returns how long that took.
func (g *ledger) goesOn(n int, deadline time.Duration) (time.Duration, error) {
	acknowledged := func() int {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.acknowledged
	}
	began, before := time.Now(), acknowledged()
	err := testkit.Await(deadline, func() error {
		if got := acknowledged() - before; got < n && g.l.ctx.Err() == nil {
			return fmt.Errorf("the database of %s took %d transactions since the repair, want %d", g.class, got, n)
		}
		return nil
	})
	return time.Since(began), err
}

// counts are what is known at one moment at which the ledger rests.
type counts struct {
	// acknowledged and unsure deletes; came back are rows that were acknowledged as deleted and
	// are there; seen is the agent's count of them, and load what pgbench completed.
	acknowledged, unsure, cameBack int
	seen, load                     float64
	unknown                        error
}

// count reads all.
func (g *ledger) count() (c counts) {
	if g.stop != nil {
		g.stop()
		<-g.done
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.acknowledged, c.unsure = g.acknowledged, len(g.unsure)
	c.unknown = testkit.Await(time.Minute, func() error {
		conn, err := g.l.connect(g.l.ctx, g.class)
		if err != nil {
			return err
		}
		defer conn.Close(g.l.ctx)
		rows, err := conn.Query(g.l.ctx, "select id from ledger where id < $1", g.next)
		if err != nil {
			return err
		}
		there, err := pgx.CollectRows(rows, pgx.RowTo[int])
		if err != nil {
			return err
		}
		c.cameBack = 0
		for _, id := range there {
			if !g.unsure[id] {
				c.cameBack++
			}
		}
		loadgen, err := agentproc.Scrape(g.l.ctx, g.l.metrics(g.class, "pgbench"))
		if err != nil {
			return err
		}
		agent, err := agentproc.Scrape(g.l.ctx, g.l.config.URL("agent")+"/metrics")
		if err != nil {
			return err
		}
		server := g.l.server(agent, g.class)
		if server == "" {
			return fmt.Errorf("the agent does not follow the server of %s", g.class)
		}
		c.load = loadgen.Sum("loadgen_completed_total", "tool", "pgbench")
		c.seen = agent.Sum("plumbline_query_duration_seconds", "server", server, "command", "delete")
		return nil
	})
	return c
}

// server is the agent's name of a class's server: another lab on the machine may have the plain one.
func (l *lab) server(m agentproc.Metrics, class string) string {
	for _, s := range m["plumbline_server_info"].GetMetric() {
		labels := map[string]string{}
		for _, p := range s.Label {
			labels[p.GetName()] = p.GetValue()
		}
		if labels["data_directory"] == l.class(class).DataDirectory() {
			return labels["server"]
		}
	}
	return ""
}

// since returns what the load did, and which of the ledger's transactions are missing where.
func (c counts) since(before counts) (done, lost string) {
	if err := errors.Join(before.unknown, c.unknown); err != nil {
		return "unknown", "unknown: " + err.Error()
	}
	grown := func(now, before float64) float64 {
		if now < before {
			return now // a counter that was reset
		}
		return now - before
	}
	acknowledged := c.acknowledged - before.acknowledged
	lost = fmt.Sprintf("of %d acknowledged transactions %d", acknowledged, c.cameBack-before.cameBack)
	seen := grown(c.seen, before.seen)
	// What an ended session was in the middle of may have been counted or not.
	if missing := float64(acknowledged) - seen; missing > 0 {
		lost += fmt.Sprintf("; %.0f of them not counted by the agent", missing)
	} else {
		lost += "; all of them counted by the agent"
	}
	return fmt.Sprintf("%.0f", grown(c.load, before.load)), lost
}
