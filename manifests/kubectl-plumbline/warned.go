package main

import (
	"context"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// mostWarnings is how many warnings are printed.
const mostWarnings = 5

// warned is a Prometheus whose warnings are printed, each once: a store that answers from a part of its data reports
// that by them.
type warned struct {
	promv1.API
	c        *cluster
	reported map[string]bool
}

// Query is promv1.API's.
func (p *warned) Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error) {
	v, warnings, err := p.API.Query(ctx, query, at, options...)
	for _, w := range warnings {
		// PromQL's own remarks are on the query and not on the data, and our queries read either kind of histogram.
		if strings.HasPrefix(w, "PromQL ") || p.reported[w] || len(p.reported) == mostWarnings {
			continue
		}
		p.reported[w] = true
		p.c.note("Prometheus warns, and its answers may lack something: %.500s", w)
	}
	return v, warnings, err
}
