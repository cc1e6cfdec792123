package soak

import (
	"context"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// longestWait is for how long a timer is trusted: it stops while the machine is suspended, and does not see that the
// clock is set.
const longestWait = time.Minute

// clock is the wall clock, by which a soak's plan goes: over restarts, suspends and steps of the clock.
type clock struct {
	now   func() time.Time
	sleep func(context.Context, time.Duration) bool
}

// wallClock is the machine's.
var wallClock = clock{time.Now, adapter.Sleep}

// since is for how long a time is past.
func (c clock) since(at time.Time) time.Duration { return c.now().Round(0).Sub(at) }

// until waits for a time. It returns false if ctx has ended, also before an empty wait.
func (c clock) until(ctx context.Context, at time.Time) bool {
	for ctx.Err() == nil {
		left := -c.since(at)
		if left <= 0 {
			return true
		}
		if !c.sleep(ctx, min(left, longestWait)) {
			return false
		}
	}
	return false
}

// deadline is context.WithDeadline by this clock.
func (c clock) deadline(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if c.since(at) >= 0 {
		cancel()
		return ctx, cancel
	}
	go func() {
		c.until(ctx, at)
		cancel()
	}()
	return ctx, cancel
}
