package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// load is what the server gets to do. made counts the statements that were answered.
type load struct {
	url  string
	made atomic.Uint64
	fail chan error
	wait sync.WaitGroup
}

// shortlived is how many statements a short connection makes.
const shortlived = 3

// workers is how many short connections there can be at a time.
const workers = 8

// start starts the load; it ends with the context, and wait awaits that.
func (l *load) start(ctx context.Context, o options) {
	due := make(chan struct{})
	l.wait.Go(func() { tick(ctx, o.connects, due) })
	for range workers {
		l.wait.Go(func() {
			for range due {
				l.report(l.connect())
			}
		})
	}
	for range o.connections {
		l.wait.Go(func() { l.report(l.stay(ctx, o.statements/float64(o.connections))) })
	}
}

// tick sends at a rate until the context ends, and closes due then. What is not received in time is made up for later.
func tick(ctx context.Context, rate float64, due chan<- struct{}) {
	defer close(due)
	every := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		select {
		case <-ctx.Done():
			return
		case due <- struct{}{}:
		}
	}
}

func (l *load) report(err error) {
	if err == nil {
		return
	}
	select {
	case l.fail <- err:
	default:
	}
}

// connect is one short connection. A statement under way is finished even at the end, so that
// what was made is known exactly.
func (l *load) connect() error {
	ctx := context.Background()
	c, err := pgx.Connect(ctx, l.url)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer c.Close(ctx)
	for range shortlived {
		if _, err := c.PgConn().Exec(ctx, "select 1").ReadAll(); err != nil {
			return fmt.Errorf("short connection: %w", err)
		}
		l.made.Add(1)
	}
	return nil
}

// stay is one connection that makes statements at a rate, prepared and with a commit each.
func (l *load) stay(ctx context.Context, rate float64) error {
	background := context.Background()
	c, err := pgx.Connect(background, l.url)
	if err != nil {
		return fmt.Errorf("connecting: %w", err)
	}
	defer c.Close(background)
	every := time.NewTicker(time.Duration(float64(time.Second) / rate))
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		if _, err := c.Exec(background, "insert into churn values ($1)", 1); err != nil {
			return fmt.Errorf("steady connection: %w", err)
		}
		l.made.Add(1)
	}
}
