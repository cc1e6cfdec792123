package collector

import (
	"context"
	"log/slog"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/testkit"
)

// traced are the collectors trace and query at work together.
type traced struct {
	t       testing.TB
	options Options
	tracer  *tracer
	query   *query

	mu     sync.Mutex
	chains []*trace.Chain
}

// startTraced follows every statement that waits.
func startTraced(t testing.TB, o TraceOptions) *traced {
	t.Helper()
	testkit.NeedBPF(t)
	all := &traced{t: t, options: Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: "/proc", SysFS: "/sys", Boundary: testBoundary(), Trace: o, Tracing: &Tracing{}}}
	start := func(make Factory) Collector {
		c, err := make(all.options)
		if err != nil {
			t.Fatal(err)
		}
		if tr, ok := c.(*tracer); ok {
			tr.sink = all.take
		}
		if err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
	all.tracer = start(NewTrace).(*tracer)
	all.query = start(NewQuery).(*query)
	return all
}

func (a *traced) take(c *trace.Chain) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.chains = append(a.chains, c)
}
