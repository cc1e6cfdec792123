package predict

import (
	"fmt"
	"math"
	"slices"
)

// Histogram counts durations in seconds. Bounds are the upper bounds of its buckets, inclusive and rising; Counts has
// one number more: the last is what was longer than the last bound. The first bucket begins at 0.
type Histogram struct {
	Bounds []float64 `json:"bounds"`
	Counts []float64 `json:"counts"`
}

// mostBuckets of a histogram: a native one of schema 3 over nine decades has 240.
const mostBuckets = 20_000

func (h Histogram) validate() error {
	if len(h.Bounds) == 0 || len(h.Bounds) > mostBuckets || len(h.Counts) != len(h.Bounds)+1 {
		return fmt.Errorf("%d bounds and %d counts; want 1 to %d bounds and one count more, which is of what is above the last bound", len(h.Bounds), len(h.Counts), mostBuckets)
	}
	before := 0.0
	for i, b := range h.Bounds {
		if !(b > before) || !possible(b) {
			return fmt.Errorf("bounds[%d] is %v after %v; bounds are seconds above 0, at most %g, and rise", i, b, before, mostNumber)
		}
		before = b
	}
	for i, c := range h.Counts {
		if !possible(c) {
			return fmt.Errorf("counts[%d] is %v; want 0 to %g", i, c, mostNumber)
		}
	}
	return nil
}

// mostAbove is the part of durations that may be above the last bound: how long these took is not known.
const mostAbove = 0.005

// endless is whether more than a few durations are above the last bound.
func (h Histogram) endless() bool {
	return len(h.Counts) > 0 && h.Counts[len(h.Counts)-1] > mostAbove*h.Count()
}

// Count is how many durations there are.
func (h Histogram) Count() float64 {
	n := 0.0
	for _, c := range h.Counts {
		n += c
	}
	return n
}

// bucket is the lower and upper bound of one; above the last bound both are that one.
func (h Histogram) bucket(i int) (low, high float64) {
	if i > 0 {
		low = h.Bounds[i-1]
	}
	if i == len(h.Bounds) {
		return low, low
	}
	return low, h.Bounds[i]
}

// within is a point of a bucket: geometrically, as buckets are, but from 0 linearly.
func within(low, high, share float64) float64 {
	if low <= 0 || high <= low {
		return low + share*(high-low)
	}
	return low * math.Pow(high/low, share)
}

// Quantile is the duration that a share of all does not exceed, interpolated within its bucket; NaN without any.
func (h Histogram) Quantile(q float64) float64 {
	at := q * h.Count()
	for i, c := range h.Counts {
		if c > 0 && at <= c {
			low, high := h.bucket(i)
			return within(low, high, at/c)
		}
		at -= c
	}
	return math.NaN()
}

// beyond is how far a duration is from the bucket of a quantile, as a logarithm; 0 within it, whose truth is not known
// better.
func (h Histogram) beyond(q, v float64) float64 {
	at := q * h.Count()
	for i, c := range h.Counts {
		if c > 0 && at <= c {
			low, high := h.bucket(i)
			return max(math.Log(v/high), math.Log(max(low, 1e-9)/v), 0)
		}
		at -= c
	}
	return math.NaN()
}

// Mean is that of the buckets' middles.
func (h Histogram) Mean() float64 {
	sum, n := 0.0, 0.0
	for i, c := range h.Counts {
		low, high := h.bucket(i)
		sum += c * within(low, high, 0.5)
		n += c
	}
	return sum / n
}

// FromTimes makes a histogram of durations in seconds, with buckets of 2 %.
func FromTimes(times []float64) Histogram {
	const growth, least = 1.02, 1e-7
	index := func(t float64) int { return int(math.Ceil(math.Log(max(t, least)/least) / math.Log(growth))) }
	if len(times) == 0 {
		return Histogram{}
	}
	first, last := index(slices.Min(times)), index(slices.Max(times))
	h := Histogram{Counts: make([]float64, last-first+3)}
	for i := first - 1; i <= last; i++ {
		h.Bounds = append(h.Bounds, least*math.Pow(growth, float64(i)))
	}
	for _, t := range times {
		h.Counts[index(t)-first+1]++
	}
	return h
}

// Add adds two histograms; one of other bounds is spread over these.
func (h Histogram) Add(o Histogram) Histogram {
	switch {
	case len(o.Counts) == 0:
		return h
	case len(h.Counts) == 0:
		return Histogram{o.Bounds, slices.Clone(o.Counts)}
	case slices.Equal(h.Bounds, o.Bounds):
		counts := slices.Clone(h.Counts)
		for i, c := range o.Counts {
			counts[i] += c
		}
		return Histogram{h.Bounds, counts}
	}
	bounds := slices.Concat(h.Bounds, o.Bounds)
	slices.Sort(bounds)
	bounds = slices.Compact(bounds)
	return h.spread(bounds).Add(o.spread(bounds))
}

// spread gives a histogram other bounds, among which its own are.
func (h Histogram) spread(bounds []float64) Histogram {
	s := Histogram{bounds, make([]float64, len(bounds)+1)}
	for i, c := range h.Counts {
		if c == 0 {
			continue
		}
		if i == len(h.Bounds) {
			s.Counts[len(bounds)] += c // how long these took is not known better among others' bounds
			continue
		}
		low, high := h.bucket(i)
		from := 0
		if low > 0 {
			from, _ = slices.BinarySearch(bounds, low)
			from++
		}
		to, _ := slices.BinarySearch(bounds, high)
		for j := from; j <= to; j++ {
			l, u := s.bucket(j)
			share := (u - l) / (high - low)
			if low > 0 {
				share = math.Log(u/l) / math.Log(high/low)
			}
			s.Counts[j] += c * share
		}
	}
	return s
}

// sampler draws durations from a histogram.
type sampler struct {
	h     Histogram
	upTo  []float64
	total float64
}

func newSampler(h Histogram) *sampler {
	s := &sampler{h: h}
	for _, c := range h.Counts {
		s.total += c
		s.upTo = append(s.upTo, s.total)
	}
	return s
}

// draw turns a number from 0 to 1 into a duration.
func (s *sampler) draw(u float64) float64 {
	at := u * s.total
	i, found := slices.BinarySearch(s.upTo, at)
	if found {
		i++
	}
	for i < len(s.upTo)-1 && s.h.Counts[i] == 0 {
		i++
	}
	i = min(i, len(s.upTo)-1)
	low, high := s.h.bucket(i)
	c := s.h.Counts[i]
	if c == 0 {
		return low
	}
	return within(low, high, min(max((at-(s.upTo[i]-c))/c, 0), 1))
}
