// Package testload holds what the tests of several loads share.
package testload

import (
	"context"
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Start runs f until the returned function is called, which waits for its end, or the test ends.
func Start(t testing.TB, f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

var atLeast = flag.Duration("at-least", 0, "how long each adapter's count is taken before it is compared with the tool's own")

// Measure waits until a load has completed n transactions, and at least as long as -at-least.
func Measure(t testing.TB, load *metrics.Load, n uint64) {
	t.Helper()
	began := time.Now()
	testkit.Eventually(t, testkit.DefaultTimeout+*atLeast, func() error {
		if m, took := load.Tally(), time.Since(began); m.Completed < n || took < *atLeast {
			return fmt.Errorf("%d of %d transactions, %s of %s", m.Completed, n, took.Round(time.Second), *atLeast)
		}
		return nil
	})
}

// Await waits until a load has completed n transactions in all.
func Await(t testing.TB, load *metrics.Load, n uint64) {
	t.Helper()
	Until(t, load, fmt.Sprint(n, " transactions"), func(m metrics.Tally) bool { return m.Completed >= n })
}

// Until waits until is(tally) holds.
func Until(t testing.TB, load *metrics.Load, what string, is func(metrics.Tally) bool) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if m := load.Tally(); !is(m) {
			return fmt.Errorf("waiting for %s: offered %d, completed %d, errors %v, skipped %v, restarts %v, phase %s",
				what, m.Offered, m.Completed, m.Errors, m.Skipped, m.Restarts, m.Phase)
		}
		return nil
	})
}
