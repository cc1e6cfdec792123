package input

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/loadgen/predict"
)

// native makes a histogram of one as Prometheus answers with: only buckets that have something are there.
func native(h *model.SampleHistogram) predict.Histogram {
	var out predict.Histogram
	add := func(bound, count float64) {
		out.Bounds, out.Counts = append(out.Bounds, bound), append(out.Counts, count)
	}
	last, above := 0.0, 0.0
	for _, b := range h.Buckets {
		low, high, n := max(float64(b.Lower), 0), float64(b.Upper), max(float64(b.Count), 0)
		if math.IsInf(high, 1) {
			above += n
			continue
		}
		if high <= last {
			continue // what is not above 0
		}
		if low > last {
			add(low, 0)
		}
		add(high, n)
		last = high
	}
	if len(out.Bounds) == 0 {
		return predict.Histogram{}
	}
	out.Counts = append(out.Counts, above)
	return out
}

// classic makes a histogram of the buckets of a classic one, by their bounds.
func classic(buckets map[string]float64) predict.Histogram {
	type bucket struct{ bound, upTo float64 }
	var all []bucket
	for text, upTo := range buckets {
		if bound, err := strconv.ParseFloat(text, 64); err == nil && bound > 0 {
			all = append(all, bucket{bound, upTo})
		}
	}
	slices.SortFunc(all, func(a, b bucket) int { return cmp.Compare(a.bound, b.bound) })
	var out predict.Histogram
	before := 0.0
	for _, b := range all {
		// The buckets of one histogram are extrapolated each for itself.
		n := max(b.upTo-before, 0)
		before = max(b.upTo, before)
		if !math.IsInf(b.bound, 1) {
			out.Bounds = append(out.Bounds, b.bound)
		}
		out.Counts = append(out.Counts, n)
	}
	if len(out.Bounds) == 0 || len(out.Counts) != len(out.Bounds)+1 {
		return predict.Histogram{}
	}
	return out
}
