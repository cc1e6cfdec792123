package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

const (
	// lockTimeout is how long a loadgen waits for another one that makes a tool's tables.
	lockTimeout = 30 * time.Minute
	// lockTry is how long it waits for it at a time: what cuts idle connections, such as a proxy, sees one that is in
	// use.
	lockTry = 2 * time.Second
	// lockPing is the pause between two signs of life on the connection that holds the lock, for the same reason.
	lockPing = 20 * time.Second
	// pingTimeout is how long such a sign may take.
	pingTimeout = 10 * time.Second
	// takeTimeout is how much longer than the requested wait the server may take to report whether it gives the lock.
	takeTimeout = 10 * time.Second
	// openTimeout is how long connecting may take, with the question for the database's name.
	openTimeout = connectTimeout + 5*time.Second
)

// ErrNoLock is the error of a server that has no locks of this kind.
var ErrNoLock = errors.New("the server does not lock")

// errNoSecond is the error of a server that gives no connection beside the lock's.
var errNoSecond = errors.New("there is no second connection beside the lock's")

// Lock is a lock in a database, held by a connection of its own.
type Lock interface {
	// Take waits at most so long for the lock, and reports whether it got it.
	Take(ctx context.Context, wait time.Duration) (bool, error)
	// Ping is an error if the connection is gone, and the lock with it.
	Ping(ctx context.Context) error
	// Database is the name of the database, for people.
	Database() string
	// Close gives the lock back, if it was taken, and ends the connection.
	Close()
}

// Alone does something with a tool's tables while no other loadgen does in the same database.
type Alone struct {
	Tool string
	Open func(context.Context) (Lock, error)
	// Timeout is how long to wait for the other one, half an hour if it is 0.
	Timeout time.Duration
	Log     *slog.Logger
}

// Do waits for the lock and does it. A lock that is lost meanwhile, or that is not to be had beside what is to be done,
// is warned of: it is one loadgen that makes tables, as a rule.
func (a Alone) Do(ctx context.Context, do func(context.Context) error) error {
	lock, err := a.hold(ctx)
	if err != nil {
		return err
	}
	if lock == nil {
		return do(ctx)
	}
	defer lock.Close()
	watching, stop := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() { a.watch(watching, lock) })
	defer watch.Wait()
	defer stop()
	return do(ctx)
}

// hold returns the lock when it has it, and none if it is to be done without.
func (a Alone) hold(ctx context.Context) (Lock, error) {
	lock, err := a.open(ctx)
	if err != nil {
		return nil, err
	}
	if err = a.take(ctx, lock); err == nil {
		// Through a pool of one connection the lock would keep its own loadgen from the database.
		var second Lock
		if second, err = a.open(ctx); err == nil {
			second.Close()
			return lock, nil
		}
		err = fmt.Errorf("%w: %w", errNoSecond, err)
	}
	lock.Close()
	if ctx.Err() == nil && (errors.Is(err, ErrNoLock) || errors.Is(err, errNoSecond)) {
		a.Log.Warn("whether another loadgen makes the same tables cannot be known: do not start two at once", "tool", a.Tool, "database", lock.Database(), "err", err)
		return nil, nil
	}
	return nil, err
}

// open connects, or fails within a deadline.
func (a Alone) open(ctx context.Context) (Lock, error) {
	limited, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	return a.Open(limited)
}

// take waits for the lock.
func (a Alone) take(ctx context.Context, lock Lock) error {
	timeout := a.Timeout
	if timeout == 0 {
		timeout = lockTimeout
	}
	until := time.Now().Add(timeout)
	var wait time.Duration // the first try does not wait
	for {
		got, err := try(ctx, lock, wait)
		switch {
		case err != nil:
			return fmt.Errorf("locking %s's tables in the database %s: %w", a.Tool, lock.Database(), err)
		case got:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case wait == 0:
			a.Log.Info("another loadgen makes the same tables: waiting for its end", "tool", a.Tool, "database", lock.Database(), "for_at_most", timeout)
		case !time.Now().Before(until):
			return fmt.Errorf("another loadgen makes %s's tables in the database %s, and was not done within %v: wait for its end, end it, or take another database",
				a.Tool, lock.Database(), timeout)
		}
		wait = max(min(lockTry, time.Until(until)), time.Millisecond)
	}
}

// try takes the lock, or fails within a deadline if the server does not answer.
func try(ctx context.Context, lock Lock, wait time.Duration) (bool, error) {
	limited, cancel := context.WithTimeout(ctx, wait+takeTimeout)
	defer cancel()
	got, err := lock.Take(limited, wait)
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("no answer within %v: %w", wait+takeTimeout, err)
	}
	return got, err
}

// watch keeps the connection in use until ctx ends, and reports if it is gone.
func (a Alone) watch(ctx context.Context, lock Lock) {
	for going := true; going; {
		going = Sleep(ctx, lockPing)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
		err := lock.Ping(limited)
		cancel()
		if err != nil {
			a.Log.Warn("the lock on the tables was lost with its connection: another loadgen may have made the same tables meanwhile",
				"tool", a.Tool, "database", lock.Database(), "err", err)
			return
		}
	}
}
