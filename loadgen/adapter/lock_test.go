package adapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// fakeLock is a lock that is free, somebody else's, or none.
type fakeLock struct {
	taken  bool
	err    error // of Take
	gone   error // of Ping
	hangs  int   // the try from which on Take has no answer, 0: none
	waits  []time.Duration
	closed int
}

func (f *fakeLock) Take(ctx context.Context, wait time.Duration) (bool, error) {
	f.waits = append(f.waits, wait)
	if f.hangs > 0 && len(f.waits) >= f.hangs {
		<-ctx.Done()
		return false, ctx.Err()
	}
	return !f.taken, f.err
}
func (f *fakeLock) Ping(context.Context) error { return f.gone }
func (f *fakeLock) Database() string           { return "shop" }
func (f *fakeLock) Close()                     { f.closed++ }

// opens are connections, the first of which is the lock's.
func opens(lock *fakeLock, second func(context.Context) (Lock, error)) func(context.Context) (Lock, error) {
	first := true
	return func(ctx context.Context) (Lock, error) {
		if first {
			first = false
			return lock, nil
		}
		return second(ctx)
	}
}

// another is a connection beside the lock's.
func another(context.Context) (Lock, error) { return &fakeLock{}, nil }

// hangs is none: nobody answers.
func hangs(ctx context.Context) (Lock, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A server that does not answer is not waited for: not with the first try, nor with a later one, nor with the
// connection.
func TestAloneHangs(t *testing.T) {
	for name, c := range map[string]struct {
		open func(*fakeLock) func(context.Context) (Lock, error)
		lock fakeLock
		want string
	}{
		"the first try": {lock: fakeLock{hangs: 1}, want: "pgbench's tables in the database shop: no answer within 10s"},
		"the third try": {lock: fakeLock{hangs: 3, taken: true}, want: "pgbench's tables in the database shop: no answer within 12s"},
		"connecting":    {open: func(*fakeLock) func(context.Context) (Lock, error) { return hangs }, want: "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				open := opens(&c.lock, another)
				if c.open != nil {
					open = c.open(&c.lock)
				}
				err := Alone{Tool: "pgbench", Log: slog.New(slog.DiscardHandler), Open: open}.
					Do(ctx, func(context.Context) error { t.Error("it is done"); return nil })
				if err == nil || !strings.Contains(err.Error(), c.want) || ctx.Err() != nil {
					t.Errorf("%v, %v; want %s", err, ctx.Err(), c.want)
				}
				if c.open == nil && c.lock.closed != 1 {
					t.Errorf("closed %d times", c.lock.closed)
				}
			})
		})
	}
}

// A pool of one connection is not kept by the lock from what it is for.
func TestAloneWithoutSecond(t *testing.T) {
	for name, second := range map[string]func(context.Context) (Lock, error){
		"none in time": hangs,
		"refused":      func(context.Context) (Lock, error) { return nil, errors.New("too many connections for role") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				var log bytes.Buffer
				lock, done := &fakeLock{}, 0
				err := Alone{Tool: "pgbench", Log: slog.New(slog.NewTextHandler(&log, nil)), Open: opens(lock, second)}.
					Do(ctx, func(context.Context) error {
						if done++; lock.closed != 1 {
							t.Errorf("the lock's connection is closed %d times when the other is needed", lock.closed)
						}
						return nil
					})
				if err != nil || done != 1 || lock.closed != 1 {
					t.Errorf("%v; done %d times, closed %d times", err, done, lock.closed)
				}
				if !strings.Contains(log.String(), "no second connection") {
					t.Errorf("the log is %q", &log)
				}
			})
		})
	}
}

// What is to be done alone is done once, unless the lock is not had in time; the connection is closed in any case.
func TestAlone(t *testing.T) {
	for name, c := range map[string]struct {
		lock     fakeLock
		done     bool
		err, log string
	}{
		"free":            {done: true},
		"somebody else's": {lock: fakeLock{taken: true}, err: "another loadgen makes pgbench's tables in the database shop, and was not done within 1ms", log: "waiting for its end"},
		"none":            {lock: fakeLock{err: fmt.Errorf("%w: unknown function", ErrNoLock)}, done: true, log: "do not start two at once"},
		"an error":        {lock: fakeLock{err: errors.New("connection reset")}, err: "locking pgbench's tables in the database shop: connection reset"},
		"lost":            {lock: fakeLock{gone: errors.New("connection reset")}, done: true, log: "the lock on the tables was lost"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			done := 0
			err := Alone{Tool: "pgbench", Timeout: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Open: opens(&c.lock, another)}.
				Do(t.Context(), func(context.Context) error { done++; return nil })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if (done == 1) != c.done || c.lock.closed != 1 {
				t.Errorf("done %d times, closed %d times", done, c.lock.closed)
			}
			if (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
				t.Errorf("the log is %q, want %q", &log, c.log)
			}
			if c.lock.waits[0] != 0 {
				t.Errorf("the first try waits %v", c.lock.waits[0])
			}
		})
	}
}

// What fails under the lock is returned as it is.
func TestAloneFails(t *testing.T) {
	lock, want := &fakeLock{}, errors.New("no room")
	err := Alone{Tool: "pgbench", Log: slog.New(slog.DiscardHandler), Open: opens(lock, another)}.
		Do(t.Context(), func(context.Context) error { return want })
	if err != want || lock.closed != 1 {
		t.Errorf("%v, closed %d times", err, lock.closed)
	}
}
