package query

import (
	"fmt"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
	"github.com/plumbline/plumbline/tests/testkit"
)

// startQuery starts a query collector on this machine's kernel.
func startQuery(t testing.TB) *query {
	t.Helper()
	return startQueryWith(t, Options{})
}

func startQueryWith(t testing.TB, own Options) *query {
	t.Helper()
	return startQueryOn(t, collectortest.Here(), own)
}

// startQueryTraced starts a query collector whose programs report to a trace collector.
func startQueryTraced(t testing.TB) *query {
	t.Helper()
	o := collectortest.Here()
	o.Tracing = &collector.Tracing{}
	collectortest.Start(t)(tracer.New(o, tracer.Options{}))
	return startQueryOn(t, o, Options{})
}

func startQueryOn(t testing.TB, o collector.Options, own Options) *query {
	t.Helper()
	return collectortest.Start(t)(New(o, own)).(*query)
}

// defaultName waits until the server of a process is followed, and returns its label.
func defaultName(t testing.TB, q *query, pid int) string {
	t.Helper()
	name := ""
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		for _, f := range q.fleet.tracked {
			if f.PID == pid && f.label != "" {
				name = f.label
				return nil
			}
		}
		return fmt.Errorf("the server of process %d has no name yet", pid)
	})
	return name
}
