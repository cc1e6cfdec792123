package tracer

import (
	"net/http"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// Pages implements Pager.
func (t *Collector) Pages() []exporterkit.Page {
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
func (t *Collector) slow() []trace.Statement {
	t.mu.Lock()
	chains := t.slowest
	t.mu.Unlock()
	return reports(chains)
}

func (t *Collector) served() []trace.Statement { return reports(t.Served()) }

// reports may take a while, and chains do not change: without the lock.
func reports(chains []*trace.Chain) (all []trace.Statement) {
	boot := collector.BootTime()
	for _, c := range chains {
		all = append(all, c.Report(boot))
	}
	return all
}
