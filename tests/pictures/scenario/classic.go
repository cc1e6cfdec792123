package scenario

import (
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/rules/ruler"
)

// bucket is a classic one: how many were at most its bound.
type bucket struct{ bound, count float64 }

// classic are the classic buckets that an exporter shows beside its native ones, or those that a histogram was made of.
// A native bucket that holds a bound counts for the next.
func classic(name string, h *histogram.FloatHistogram) (all []bucket) {
	bounds := h.CustomValues
	switch {
	case strings.HasPrefix(name, "plumbline_"):
		bounds = nativehist.Bounds
	case strings.HasPrefix(name, "loadgen_"):
		bounds = metrics.Buckets
	}
	for _, bound := range bounds {
		total := 0.0
		for it := h.AllBucketIterator(); it.Next(); {
			if b := it.At(); b.Upper <= bound {
				total += b.Count
			}
		}
		all = append(all, bucket{bound, total})
	}
	return all
}

// addClassic keeps a sample as a Prometheus that stores no native histograms.
func addClassic(m *ruler.Memory, l labels.Labels, at time.Time, s sample) *ruler.Series {
	h := s.histogram
	if h == nil {
		return keep(m, l, at, s)
	}
	name := l.Get(model.MetricNameLabel)
	part := func(end string, value float64, bound ...string) *ruler.Series {
		b := labels.NewBuilder(l).Set(model.MetricNameLabel, name+end)
		if len(bound) > 0 {
			b.Set(labels.BucketLabel, bound[0])
		}
		return m.Add(b.Labels(), at, value, nil)
	}
	for _, b := range classic(name, h) {
		part("_bucket", b.count, strconv.FormatFloat(b.bound, 'g', -1, 64))
	}
	part("_bucket", h.Count, "+Inf")
	part("_sum", h.Sum)
	return part("_count", h.Count)
}
