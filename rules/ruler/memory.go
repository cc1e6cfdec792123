// Package ruler evaluates recording rules and alerts over series in memory, with Prometheus' own engine.
package ruler

import (
	"math"
	"slices"
	"sort"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/plumbline/plumbline/rules/stored"
)

// Memory keeps the samples of series. It is not safe for use by several at once.
type Memory struct {
	series map[string][]*Series // by metric
	byKey  map[string]*Series
}

// Series is a series with its samples.
type Series struct {
	promql.Series
	// Stale is set if the latest sample marks its end.
	Stale bool
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory {
	return &Memory{series: map[string][]*Series{}, byKey: map[string]*Series{}}
}

// Add appends a sample: a histogram, or a number if that is nil.
func (m *Memory) Add(l labels.Labels, at time.Time, number float64, h *histogram.FloatHistogram) *Series {
	key := l.String()
	s := m.byKey[key]
	if s == nil {
		s = &Series{Series: promql.Series{Metric: l}}
		m.byKey[key] = s
		name := l.Get(model.MetricNameLabel)
		m.series[name] = append(m.series[name], s)
	}
	s.Stale = false
	if h != nil {
		// Of equal histograms one is kept: most series of a quiet device do not change.
		if n := len(s.Histograms); n > 0 && s.Histograms[n-1].H.Equals(h) {
			h = s.Histograms[n-1].H
		}
		s.Histograms = append(s.Histograms, promql.HPoint{T: at.UnixMilli(), H: h})
	} else {
		s.Floats = append(s.Floats, promql.FPoint{T: at.UnixMilli(), F: number})
	}
	return s
}

// End marks that a series has no more samples, as Prometheus does.
func (m *Memory) End(s *Series, at time.Time) {
	if s.Stale {
		return
	}
	number := math.Float64frombits(value.StaleNaN)
	var h *histogram.FloatHistogram
	if len(s.Histograms) > 0 {
		h = &histogram.FloatHistogram{Sum: number}
	}
	m.Add(s.Metric, at, number, h)
	s.Stale = true
}

// All returns all series by their labels, as labels.Labels.String writes them.
func (m *Memory) All() map[string]*Series { return m.byKey }

// Find is a stored.Find.
func (m *Memory) Find(from, to int64, matchers []*labels.Matcher) (found []storage.Series) {
	named := slices.IndexFunc(matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual })
	series := m.series
	if named >= 0 {
		name := matchers[named].Value
		series = map[string][]*Series{name: m.series[name]}
	}
	for _, list := range series {
		for _, s := range list {
			if stored.Match(s.Metric, matchers) {
				found = append(found, promql.NewStorageSeries(s.within(from, to)))
			}
		}
	}
	return found
}

// within is the part of a series in a time.
func (s *Series) within(from, to int64) promql.Series {
	return promql.Series{
		Metric:     s.Metric,
		Floats:     between(s.Floats, from, to, func(p promql.FPoint) int64 { return p.T }),
		Histograms: between(s.Histograms, from, to, func(p promql.HPoint) int64 { return p.T }),
	}
}

func between[P any](points []P, from, to int64, at func(P) int64) []P {
	first := sort.Search(len(points), func(i int) bool { return at(points[i]) >= from })
	after := sort.Search(len(points), func(i int) bool { return at(points[i]) > to })
	return points[first:after]
}
