package story

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
		name := l.Get(model.MetricNameLabel)
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

// end marks that a series has no more samples, as Prometheus does.
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

// find is stored.Find.
func (m *memory) find(from, to int64, matchers []*labels.Matcher) (found []storage.Series) {
	named := slices.IndexFunc(matchers, func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel && m.Type == labels.MatchEqual })
	series := m.series
	if named >= 0 {
		name := matchers[named].Value
		series = map[string][]*kept{name: m.series[name]}
	}
	for _, list := range series {
		for _, k := range list {
			if stored.Match(k.Metric, matchers) {
				found = append(found, promql.NewStorageSeries(k.within(from, to)))
			}
		}
	}
	return found
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
