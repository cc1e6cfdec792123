package collector

import (
	"net/http"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Pager is a collector with pages of its own beside its metrics.
type Pager interface {
	Pages() []exporterkit.Page
}

// Pages implements Pager.
func (t *tracer) Pages() []exporterkit.Page {
	return []exporterkit.Page{
		{Path: "/slowest", Text: "Slowest statements", Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
			_ = trace.WriteHTML(w, t.slow(), t.served()) // a client that is gone needs no answer
		})},
		{Path: "/slowest.json", Handler: jsonPage(t.slow)},
		{Path: "/slowest-served.json", Handler: jsonPage(t.served)},
	}
}

func jsonPage(statements func() []trace.Statement) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = trace.WriteJSON(w, statements())
	})
}

// slow are the slowest statements.
func (t *tracer) slow() []trace.Statement {
	t.mu.Lock()
	chains := t.slowest
	t.mu.Unlock()
	return reports(chains)
}

// served are the slowest requests of engines elsewhere to replicas of this node.
func (t *tracer) served() []trace.Statement {
	t.mu.Lock()
	chains := t.slowestServed
	t.mu.Unlock()
	return reports(chains)
}

// reports may take a while, and chains do not change: without the lock.
func reports(chains []*trace.Chain) (all []trace.Statement) {
	boot := bootTime()
	for _, c := range chains {
		all = append(all, c.Report(boot))
	}
	return all
}

// bootTime is when the kernel's monotonic clock was zero, by the wall clock as it is now.
func bootTime() time.Time { return time.Now().Add(-time.Duration(monotonic())) }
