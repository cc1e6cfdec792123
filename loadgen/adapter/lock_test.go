package adapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

// fakeLock is a lock that is free, somebody else's, or none.
type fakeLock struct {
	taken  bool
	err    error // of Take
	gone   error // of Ping
	waits  []time.Duration
	closed int
}

func (f *fakeLock) Take(_ context.Context, wait time.Duration) (bool, error) {
	f.waits = append(f.waits, wait)
	return !f.taken, f.err
}
func (f *fakeLock) Ping(context.Context) error { return f.gone }
func (f *fakeLock) Database() string           { return "shop" }
func (f *fakeLock) Close()                     { f.closed++ }

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
			err := Alone{Tool: "pgbench", Patience: time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil)),
				Open: func(context.Context) (Lock, error) { return &c.lock, nil }}.
				Do(t.Context(), func(context.Context) error { done++; return nil })
			if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want %q", err, c.err)
			}
			if (done == 1) != c.done || c.lock.closed != 1 {
				t.Errorf("done %d times, closed %d times", done, c.lock.closed)
			}
			if (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
				t.Errorf("the log says %q, want %q", &log, c.log)
			}
			if c.lock.waits[0] != 0 {
				t.Errorf("the first try waits %v", c.lock.waits[0])
			}
		})
	}
}

// What fails under the lock is told as it is.
func TestAloneFails(t *testing.T) {
	lock, want := &fakeLock{}, errors.New("no room")
	err := Alone{Tool: "pgbench", Log: slog.New(slog.DiscardHandler), Open: func(context.Context) (Lock, error) { return lock, nil }}.
		Do(t.Context(), func(context.Context) error { return want })
	if err != want || lock.closed != 1 {
		t.Errorf("%v, closed %d times", err, lock.closed)
	}
}
