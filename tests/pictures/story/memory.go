package story

import (
	"context"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/util/annotations"
)

// memory keeps the samples while the rules are evaluated. It is not safe for use by several at once.
type memory struct {
	series map[string][]*kept // by metric
	byKey  map[string]*kept
}

// kept is a series with its samples.
type kept struct {
	promql.Series
	stale bool
}

func newMemory() *memory {
	return &memory{series: map[string][]*kept{}, byKey: map[string]*kept{}}
}

// add appends a sample.
func (m *memory) add(l labels.Labels, at time.Time, s sample) *kept {
	key := l.String()
	k := m.byKey[key]
	if k == nil {
		k = &kept{Series: promql.Series{Metric: l}}
		m.byKey[key] = k
		name := l.Get(labels.MetricName)
		m.series[name] = append(m.series[name], k)
	}
	k.stale = false
	if s.histogram != nil {
		k.Histograms = append(k.Histograms, promql.HPoint{T: at.UnixMilli(), H: s.histogram})
	} else {
		k.Floats = append(k.Floats, promql.FPoint{T: at.UnixMilli(), F: s.number})
	}
	return k
}

// end says that a series has no more samples, as Prometheus marks it.
func (m *memory) end(k *kept, at time.Time) {
	if k.stale {
		return
	}
	stale := sample{number: math.Float64frombits(value.StaleNaN)}
	if len(k.Histograms) > 0 {
		stale.histogram = &histogram.FloatHistogram{Sum: stale.number}
	}
	m.add(k.Metric, at, stale)
	k.stale = true
}

// Querier answers the engine; what is stored is sorted and complete.
func (m *memory) Querier(from, to int64) (storage.Querier, error) { return &querier{m, from, to}, nil }

type querier struct {
	*memory
	from, to int64
}

// Select returns the series of matchers.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var found []storage.Series
	for name, list := range q.series {
		if slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return m.Name == labels.MetricName && !m.Matches(name) }) {
			continue
		}
		for _, k := range list {
			if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(k.Metric.Get(m.Name)) }) {
				found = append(found, promql.NewStorageSeries(k.within(q.from, q.to)))
			}
		}
	}
	slices.SortFunc(found, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &set{all: found, at: -1}
}

// within is the part of a series in a time.
func (k *kept) within(from, to int64) promql.Series {
	return promql.Series{
		Metric:     k.Metric,
		Floats:     between(k.Floats, from, to, func(p promql.FPoint) int64 { return p.T }),
		Histograms: between(k.Histograms, from, to, func(p promql.HPoint) int64 { return p.T }),
	}
}

func between[P any](points []P, from, to int64, at func(P) int64) []P {
	first := sort.Search(len(points), func(i int) bool { return at(points[i]) >= from })
	after := sort.Search(len(points), func(i int) bool { return at(points[i]) > to })
	return points[first:after]
}

// LabelValues is not asked by expressions.
func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames is not asked by expressions.
func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close has nothing to give back.
func (q *querier) Close() error { return nil }

type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }
