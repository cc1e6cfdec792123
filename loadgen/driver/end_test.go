package driver

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// running runs a load until end is called, and returns when both its connections are in use; ended is closed when all
// is over.
func running(t *testing.T, r rig) (end context.CancelFunc, ended <-chan struct{}) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		r.Run(ctx)
		close(over)
	}()
	r.await(t, "both connections", func(m metrics.Tally) bool { return m.Completed >= 20 })
	return end, over
}

// What waits for a connection when the load ends is not sent after it: it is skipped, with the time that it had waited.
// What was sent may end.
func TestEndSendsNothing(t *testing.T) {
	const connections, waiting = 2, 100
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), Connections: connections, Timeout: testkit.DefaultTimeout})
	end, ended := running(t, r)
	release := server.Hold()
	held, offered := server.Answered(), r.load.Tally().Offered
	r.await(t, "a queue", func(m metrics.Tally) bool { return m.Offered >= offered+waiting })
	end()
	// The load has ended when nothing is due any more: at 200/s something is every 5 ms.
	last, since := uint64(0), time.Now()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if now := r.load.Tally().Offered; now != last {
			last, since = now, time.Now()
		}
		if quiet := time.Since(since); quiet < 2*time.Second {
			return fmt.Errorf("something was due %v ago", quiet)
		}
		return nil
	})
	release()
	<-ended
	if sent := server.Answered() - held; sent > connections {
		t.Errorf("%d statements were answered after the end, of which %d were under way", sent, connections)
	}
	got := r.balance(t)
	if n := got.Skipped[metrics.End]; n < waiting-connections || got.Skipped[metrics.Late] != 0 || got.Response.Above(19*time.Second) != 0 {
		t.Errorf("%d of at least %d that waited at the end are skipped, %d as late, %d are slow", n, waiting-connections, got.Skipped[metrics.Late], got.Response.Above(19*time.Second))
	}
	if longest := got.Response.Max(); longest < 200*time.Millisecond {
		t.Errorf("the longest response time is %v, of a stall of more than 200 ms", longest)
	}
}

// A few that wait for a moment when a run ends do not make a healthy server slow.
func TestEndIsNotSlow(t *testing.T) {
	const connections, waiting, held = 2, 3, 20 * time.Millisecond
	attempt(t, func() error {
		server := testdb.StartStaller(t)
		r := newRig(t, Config{DSN: server.DSN(), Connections: connections})
		end, ended := running(t, r)
		release := server.Hold()
		offered := r.load.Tally().Offered
		r.await(t, "a queue", func(m metrics.Tally) bool { return m.Offered >= offered+connections+waiting })
		end()
		time.Sleep(held) // the wait is what is tested
		release()
		<-ended
		got := r.balance(t)
		if n := got.Skipped[metrics.End]; n < waiting-1 {
			return fmt.Errorf("%d waited at the end, want %d", n, waiting)
		}
		if p99, longest := got.Response.Quantile(0.99), got.Response.Max(); p99 >= time.Second || longest >= time.Second {
			return fmt.Errorf("p99 is %v and the longest %v, of a wait of %v", p99, longest, held)
		}
		if got.Skipped[metrics.Late] != 0 || got.Unfit() != 0 {
			return fmt.Errorf("%d are late and %d unfit", got.Skipped[metrics.Late], got.Unfit())
		}
		return nil
	})
}
