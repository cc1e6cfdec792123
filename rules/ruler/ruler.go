package ruler

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/stored"
)

// Rule is one of the files' rules, with what its evaluations need of the former ones.
type Rule struct {
	rules.Rule
	// last are the series of the last evaluation.
	last map[*Series]bool
	// since is when an alert's condition began, by its labels.
	since map[string]time.Time
}

// NewEngine returns an engine with Prometheus' own defaults.
func NewEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{
		MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		EnableAtModifier: true, EnableNegativeOffset: true, Parser: parser.NewParser(parser.Options{}),
	})
}

// New returns rules that were never evaluated.
func New(all []rules.Rule) (made []*Rule) {
	for _, r := range all {
		made = append(made, &Rule{Rule: r})
	}
	return made
}

// Evaluate adds what the rule records at a moment, or the series ALERTS of its alert.
func (r *Rule) Evaluate(ctx context.Context, engine *promql.Engine, m *Memory, at time.Time) error {
	query, err := engine.NewInstantQuery(ctx, stored.Find(m.Find), nil, r.Expr, at)
	if err != nil {
		return fmt.Errorf("rule %s%s: %w", r.Record, r.Alert, err)
	}
	defer query.Close()
	result := query.Exec(ctx)
	if result.Err != nil {
		return fmt.Errorf("rule %s%s at %s: %w", r.Record, r.Alert, at, result.Err)
	}
	var found promql.Vector
	switch value := result.Value.(type) {
	case promql.Vector:
		found = value
	case promql.Scalar:
		found = promql.Vector{{F: value.V}}
	}
	if r.Alert != "" {
		found = r.firing(found, at)
	}
	now := map[*Series]bool{}
	for _, one := range found {
		b := labels.NewBuilder(one.Metric)
		if r.Alert == "" {
			b.Set(model.MetricNameLabel, r.Record)
			for name, value := range r.Labels {
				b.Set(name, value)
			}
		}
		var h *histogram.FloatHistogram
		if one.H != nil {
			h = one.H.Copy()
		}
		now[m.Add(b.Labels(), at, one.F, h)] = true
	}
	for s := range r.last {
		if !now[s] {
			m.End(s, at)
		}
	}
	r.last = now
	return nil
}

// firing are the series ALERTS of an alert's condition; a label that is a template keeps its text, which no panel
// shows.
func (r *Rule) firing(found promql.Vector, at time.Time) promql.Vector {
	since := map[string]time.Time{}
	var alerts promql.Vector
	for _, one := range found {
		b := labels.NewBuilder(one.Metric)
		b.Set(model.MetricNameLabel, "ALERTS").Set("alertname", r.Alert)
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			b.Set(name, r.Labels[name])
		}
		key := b.Labels().String()
		began, ok := r.since[key]
		if !ok {
			began = at
		}
		since[key] = began
		state := "pending"
		if at.Sub(began) >= time.Duration(r.For) {
			state = "firing"
		}
		alerts = append(alerts, promql.Sample{Metric: b.Set("alertstate", state).Labels(), F: 1})
	}
	r.since = since
	return alerts
}
