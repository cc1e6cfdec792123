// Package nativehist turns the slots that exporters/bpf/native_histogram.h counts in the
// kernel into Prometheus histograms: a native one of schema 3, with classic buckets for readers that
// know only those.
package nativehist

import (
	"fmt"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// Schema is the native histogram's resolution: eight buckets per power of two.
	Schema = 3
	// minExponent is the bucket of slot 0: up to 2^-20 s.
	minExponent = -20
	// Slots is the number of slots; the last holds everything above 2^10 s.
	Slots = 30<<Schema + 2
)

// Bounds are the classic buckets' upper bounds in seconds, for readers that know no native ones (the rules for either
// kind): the powers of two from 2^-14 (61 us) to 2^5 (32 s), which are bounds of native buckets, too.
var Bounds = bounds(smallest, largest)

// smallest and largest are the bounds' exponents.
const smallest, largest = -14, 5

func bounds(smallest, largest int) (all []float64) {
	for e := smallest; e <= largest; e++ {
		all = append(all, math.Ldexp(1, e))
	}
	return all
}

// Buckets returns the native buckets by index, empty ones left out.
func Buckets(slots []uint64) map[int]int64 { return buckets(slots, Schema) }

func buckets(slots []uint64, schema int) map[int]int64 {
	all := map[int]int64{}
	for slot, n := range slots {
		if n > 0 {
			all[minExponent<<schema+slot] = int64(n)
		}
	}
	return all
}

// native returns a histogram of so many slots at the most, with native buckets alone.
func native(desc *prometheus.Desc, slots []uint64, most, schema int, sum float64, created time.Time, labels []string) (prometheus.Metric, error) {
	if len(slots) > most {
		return nil, fmt.Errorf("histogram with %d slots, want at most %d", len(slots), most)
	}
	var count uint64
	for _, n := range slots {
		count += n
	}
	return prometheus.NewConstNativeHistogram(desc, count, sum, buckets(slots, schema), nil, 0, int32(schema), 0, created, labels...)
}

// CoarseSlots is the number of slots of a histogram with one bucket for each power of two: query_slot of
// exporters/agent/bpf/query/query_id.h.
const CoarseSlots = Slots>>Schema + 2

// CoarseSlot is where a slot of New's histogram is in NewCoarse's.
func CoarseSlot(slot int) int { return (slot + 1<<Schema - 1) >> Schema }

// NewCoarse returns a native histogram with one bucket for each power of two, and no classic buckets.
func NewCoarse(desc *prometheus.Desc, slots []uint64, sum float64, created time.Time, labels ...string) (prometheus.Metric, error) {
	return native(desc, slots, CoarseSlots, 0, sum, created, labels)
}

// New returns a histogram with native and classic buckets. sum is in seconds. created is when counting began.
func New(desc *prometheus.Desc, slots []uint64, sum float64, created time.Time, labels ...string) (prometheus.Metric, error) {
	m, err := native(desc, slots, Slots, Schema, sum, created, labels)
	if err != nil {
		return nil, err
	}
	return &metric{Metric: m, classic: classic(slots)}, nil
}

// classic are the classic buckets.
func classic(slots []uint64) (all []*dto.Bucket) {
	var cumulated uint64
	slot := 0
	for i, bound := range Bounds {
		for last := (smallest + i - minExponent) << Schema; slot <= last && slot < len(slots); slot++ {
			cumulated += slots[slot]
		}
		all = append(all, &dto.Bucket{UpperBound: &bound, CumulativeCount: new(cumulated)})
	}
	return all
}

// metric adds classic buckets to a native histogram; client_golang has no constant metric
// with both.
type metric struct {
	prometheus.Metric
	classic []*dto.Bucket
}

func (m *metric) Write(out *dto.Metric) error {
	if err := m.Metric.Write(out); err != nil {
		return err
	}
	h := out.GetHistogram()
	h.Bucket = m.classic
	return nil
}
