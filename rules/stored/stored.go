// Package stored makes series in memory a storage for Prometheus' own engine.
package stored

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

// Find returns the series that have samples between two times, in milliseconds, and that all matchers match, in any
// order.
type Find func(from, to int64, matchers []*labels.Matcher) []storage.Series

// Querier makes it a storage.Queryable. Expressions query only series: it returns no label names or values.
func (f Find) Querier(from, to int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := f(from, to, matchers)
		slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
		return &set{found, -1}
	}}, nil
}

// Sample returns a series of one value at a time in milliseconds.
func Sample(l labels.Labels, at int64, value float64) storage.Series {
	return Samples(l, func(yield func(int64, float64) bool) { yield(at, value) })
}

// Samples returns a series of values at times in milliseconds, the earliest first.
func Samples(l labels.Labels, all iter.Seq2[int64, float64]) storage.Series {
	var samples []chunks.Sample
	for at, value := range all {
		samples = append(samples, sample{at, value})
	}
	return storage.NewListSeries(l, samples)
}

// sample is a value at a time.
type sample struct {
	t int64
	v float64
}

func (s sample) T() int64                      { return s.t }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.v }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Copy() chunks.Sample           { return s }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }

// Select returns the series that all matchers match.
func Select(all []storage.Series, matchers []*labels.Matcher) (found []storage.Series) {
	for _, s := range all {
		if Match(s.Labels(), matchers) {
			found = append(found, s)
		}
	}
	return found
}

// Match reports whether all matchers match a series.
func Match(l labels.Labels, matchers []*labels.Matcher) bool {
	return !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(l.Get(m.Name)) })
}

// Query evaluates an expression at a time, and returns the result, and what fails in the evaluation, as a client of
// Prometheus' API reads it.
func (f Find) Query(ctx context.Context, engine *promql.Engine, expr string, at time.Time) (model.Value, error) {
	q, err := engine.NewInstantQuery(ctx, f, nil, expr, at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	r := q.Exec(ctx)
	switch {
	case r.Err == nil:
	case ctx.Err() != nil:
		return nil, r.Err
	default:
		return nil, &promv1.Error{Type: promv1.ErrExec, Msg: r.Err.Error()}
	}
	text, err := json.Marshal(r.Value)
	if err != nil {
		return nil, err
	}
	switch r.Value.Type() {
	case parser.ValueTypeVector:
		v := model.Vector{}
		err = json.Unmarshal(text, &v)
		return v, err
	case parser.ValueTypeMatrix:
		m := model.Matrix{}
		err = json.Unmarshal(text, &m)
		return m, err
	}
	return nil, fmt.Errorf("the result is a %s", r.Value.Type())
}

type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
