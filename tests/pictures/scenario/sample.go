package scenario

import (
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"time"

	"github.com/prometheus/prometheus/model/histogram"
	"go.yaml.in/yaml/v3"
)

const (
	// noise is how much rates and means of a class vary from step to step.
	noise = 0.05
	// spread is the width of a histogram's logarithms: the 99th percentile is 4.3 times the median.
	spread = 0.63
	// schema gives a native histogram four buckets for each doubling.
	schema = 2
	// smallest and largest are the ends of a native histogram, in powers of two of a second.
	smallest, largest = -18, 7
)

// state is what a series has counted so far.
type state struct {
	*series
	sum     float64
	buckets []float64
	bounds  []float64 // of kind custom
}

// sample is a number or a histogram.
type sample struct {
	number    float64
	histogram *histogram.FloatHistogram
}

// next is the series' sample at a moment; since is the time from the begin of what is shown, negative before; elapsed
// is the time since the sample before.
func (s *state) next(since, elapsed time.Duration) sample {
	rate, mean, value := s.rate, s.mean, s.value
	for _, c := range s.changes {
		if since < c.From || c.To != 0 && since >= c.To {
			continue
		}
		if c.Rate != nil {
			rate *= *c.Rate
		}
		if c.Mean != nil {
			mean *= *c.Mean
		}
		if c.Value != nil {
			value = *c.Value
		}
		if c.Age {
			value = (since - c.From).Seconds()
		}
	}
	if s.kind == "" {
		return sample{number: value}
	}
	events := rate * s.varied("rate", since) * elapsed.Seconds()
	mean *= s.varied("mean", since)
	s.sum += events * mean
	switch s.kind {
	case "counter":
		return sample{number: s.sum}
	case "custom":
		return sample{histogram: s.custom(events, mean)}
	}
	return sample{histogram: s.native(events, mean)}
}

// varied is a factor near 1, the same for all series of a class, so that parts still add up.
func (s *state) varied(what string, since time.Duration) float64 {
	seed := fnv.New64a()
	fmt.Fprint(seed, s.class, what, since)
	return math.Exp(noise * rand.New(rand.NewPCG(seed.Sum64(), 1)).NormFloat64())
}

// below is the share of events of a mean that take at most a time.
func below(seconds, mean float64) float64 {
	median := math.Log(mean) - spread*spread/2
	return 0.5 * math.Erfc((median-math.Log(seconds))/(spread*math.Sqrt2))
}

// count adds events to the buckets with these upper bounds, and what is above to the last one. It returns the whole
// events so far: parts of one would be rates where nothing happens any more.
func (s *state) count(events, mean float64, bounds []float64) (counts []float64, total float64) {
	if s.buckets == nil {
		s.buckets = make([]float64, len(bounds)+1)
	}
	before := 0.0
	for i := range s.buckets {
		share := 1.0
		if i < len(bounds) {
			share = below(bounds[i], mean)
		}
		s.buckets[i] += events * (share - before)
		before = share
		counts = append(counts, math.Round(s.buckets[i]))
		total += counts[i]
	}
	return counts, total
}

// native has a bucket for each of its bounds; what is above the last one is in it.
func (s *state) native(events, mean float64) *histogram.FloatHistogram {
	if s.bounds == nil {
		for i := smallest << schema; i < largest<<schema; i++ {
			s.bounds = append(s.bounds, math.Exp2(float64(i)/(1<<schema)))
		}
	}
	counts, total := s.count(events, mean, s.bounds)
	return &histogram.FloatHistogram{
		Schema: schema, Count: total, Sum: s.sum,
		PositiveSpans:   []histogram.Span{{Offset: smallest << schema, Length: uint32(len(counts))}},
		PositiveBuckets: counts,
	}
}

func (s *state) custom(events, mean float64) *histogram.FloatHistogram {
	counts, total := s.count(events, mean, s.bounds)
	return &histogram.FloatHistogram{
		Schema: histogram.CustomBucketsSchema, Count: total, Sum: s.sum, CustomValues: s.bounds,
		PositiveSpans:   []histogram.Span{{Length: uint32(len(counts))}},
		PositiveBuckets: counts,
	}
}

// blockBounds are the bounds of blockio's histograms in seconds.
func blockBounds(file string) ([]float64, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Metrics struct {
			Histograms []struct {
				Keys []float64 `yaml:"bucket_keys"`
				Unit float64   `yaml:"bucket_multiplier"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &content); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if len(content.Metrics.Histograms) == 0 || len(content.Metrics.Histograms[0].Keys) == 0 {
		return nil, fmt.Errorf("%s: no histogram with bucket_keys", file)
	}
	h := content.Metrics.Histograms[0]
	var bounds []float64
	for _, k := range h.Keys {
		bounds = append(bounds, k*h.Unit)
	}
	return bounds, nil
}
