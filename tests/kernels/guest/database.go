package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/certificate"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	// clients make statements at the same time: more than there are CPUs, so that servers are preempted.
	clients = 4
	// a churning connection makes this many.
	shortlived = 3
	naps       = 10
	nap        = 100 * time.Millisecond
)

// kinds are the ways to make statements. Each is called with a connection of its own, and a number of statements to
// make.
var kinds = []struct {
	what string
	make func(ctx context.Context, url string, n int) error
}{
	{"simple", func(ctx context.Context, url string, n int) error {
		return connected(ctx, url, n, func(c *pgx.Conn) error {
			_, err := c.PgConn().Exec(ctx, "select count(*) from kernels").ReadAll()
			return err
		})
	}},
	{"extended", func(ctx context.Context, url string, n int) error {
		return connected(ctx, url, n, func(c *pgx.Conn) error {
			return c.PgConn().ExecParams(ctx, "insert into kernels values ($1)", [][]byte{[]byte("1")}, nil, nil, nil).Read().Err
		})
	}},
	{"prepared", func(ctx context.Context, url string, n int) error {
		prepared := false
		return connected(ctx, url, n, func(c *pgx.Conn) error {
			if !prepared {
				if _, err := c.PgConn().Prepare(ctx, "p", "select $1::int", nil); err != nil {
					return err
				}
				prepared = true
			}
			return c.PgConn().ExecPrepared(ctx, "p", [][]byte{[]byte("1")}, nil, nil).Read().Err
		})
	}},
	{"tls", func(ctx context.Context, url string, n int) error {
		return connected(ctx, encrypted(url), n, func(c *pgx.Conn) error {
			_, err := c.PgConn().Exec(ctx, "select 1").ReadAll()
			return err
		})
	}},
	{"churn", func(ctx context.Context, url string, n int) error {
		for left := n; left > 0; left -= shortlived {
			if err := connected(ctx, url, min(left, shortlived), func(c *pgx.Conn) error {
				_, err := c.PgConn().Exec(ctx, "select 1").ReadAll()
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}},
}

func encrypted(url string) string {
	return strings.Replace(url, "sslmode=disable", "sslmode=require", 1)
}

// connected calls f n times with a connection.
func connected(ctx context.Context, url string, n int, f func(*pgx.Conn) error) error {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	for range n {
		if err := f(c); err != nil {
			return errors.Join(err, c.Close(ctx))
		}
	}
	return c.Close(ctx)
}

// together has all clients do the same at the same time.
func together(do func() error) error {
	failed := make([]error, clients)
	var wait sync.WaitGroup
	for i := range failed {
		wait.Go(func() { failed[i] = do() })
	}
	wait.Wait()
	return errors.Join(failed...)
}

// database is a server with the agent beside it.
type database struct {
	*pgserver.Server
	agent *agent
}

// measureDatabase compares the statements in a server's log with the agent's.
func measureDatabase(t *rig.Scope, o options, a *agent, out *outcome.Outcome) {
	logf("starting PostgreSQL")
	d := startDatabase(t, o.template, a)
	defer func() { t.Check(d.Stop()) }()
	ctx := context.Background()
	t.Check(connected(ctx, d.URL, 1, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, "create table kernels (i int)")
		return err
	}))
	if !out.Query.Works {
		return
	}
	d.await(t, d.URL)
	d.await(t, encrypted(d.URL))
	before := d.agent.metrics(t)
	for _, k := range kinds {
		logf("%d statements: %s", o.statements, k.what)
		out.Statements = append(out.Statements, d.count(t, k.what, func() error {
			return together(func() error { return k.make(ctx, d.URL, o.statements/clients) })
		}))
	}
	var after agentproc.Metrics
	// A machine that pauses once a nap's clock has started, and before the server is asleep, makes the sleep shorter.
	for out.Waited, out.Slept = 0, 0; out.Slept == 0 || out.Short() && len(out.Statements) < len(kinds)+5; {
		logf("%d naps of %s", naps, nap)
		awake := d.agent.metrics(t)
		out.Statements = append(out.Statements, d.count(t, "naps", func() error {
			return connected(ctx, d.URL, naps, func(c *pgx.Conn) error {
				_, err := c.PgConn().Exec(ctx, fmt.Sprintf("select pg_sleep(%v)", nap.Seconds())).ReadAll()
				return err
			})
		}))
		after = d.agent.metrics(t)
		out.Slept = naps * nap.Seconds()
		out.Waited = after.Sum("plumbline_query_phase_seconds_total", "phase", "wait") - awake.Sum("plumbline_query_phase_seconds_total", "phase", "wait")
	}
	out.Duration = after.Seconds("plumbline_query_duration_seconds") - before.Seconds("plumbline_query_duration_seconds")
	out.Phases = after.Sum("plumbline_query_phase_seconds_total") - before.Sum("plumbline_query_phase_seconds_total")
}

func startDatabase(t *rig.Scope, template string, a *agent) *database {
	postgres, err := pgserver.Tool("postgres")
	t.Check(err)
	s, err := pgserver.Start(pgserver.Options{Template: template, Postgres: postgres,
		Settings: map[string]string{"cluster_name": "guest", "log_statement": "all", "ssl": "on", "autovacuum": "off", "shared_buffers": "16MB"},
		Prepare:  func(data string) { t.Check(certificate.Write(data)) }})
	t.Check(err)
	return &database{s, a}
}

// statements returns how many statements there are: those that the agent counted.
func statements(m agentproc.Metrics) float64 { return m.Sum("plumbline_query_duration_seconds") }

// await makes statements until the agent counts one: from then on it follows the server, and its TLS library.
func (d *database) await(t *rig.Scope, url string) {
	ctx := context.Background()
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := d.agent.scrape()
		if err != nil {
			return err
		}
		before := statements(m)
		if err := connected(ctx, url, 1, func(c *pgx.Conn) error {
			_, err := c.PgConn().Exec(ctx, "select 1").ReadAll()
			return err
		}); err != nil {
			return err
		}
		const soon = 20 * time.Second // else there is another one
		return testkit.Await(soon, func() error {
			if m, err = d.agent.scrape(); err == nil && statements(m) == before {
				err = fmt.Errorf("the agent counts no statement of the server: %s", described(m))
			}
			return err
		})
	})
}

// count has statements made, and compares the server's log with the agent.
func (d *database) count(t *rig.Scope, what string, make func() error) outcome.Count {
	before, logged := statements(d.agent.metrics(t)), d.logged(t)
	t.Check(make())
	truth := d.logged(t) - logged
	m := d.agent.settled(t, before+float64(truth), statements)
	c := outcome.Count{What: what, Truth: truth, Counted: uint64(statements(m) - before)}
	logf("%s: %d counted of %d", what, c.Counted, c.Truth)
	return c
}

// logged returns how many statements the server's log has.
func (d *database) logged(t *rig.Scope) uint64 {
	text, err := os.ReadFile(d.Log)
	t.Check(err)
	return uint64(bytes.Count(text, []byte("LOG:  statement: ")) + bytes.Count(text, []byte("LOG:  execute ")))
}
