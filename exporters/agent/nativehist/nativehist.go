// Package nativehist turns the slots that exporters/bpf/native_histogram.h counts in the
// kernel into Prometheus histograms: a native one of schema 3, with a few classic buckets for
// readers that know only those.
package nativehist

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

const (
	// Schema is the native histogram's resolution: eight buckets per power of two.
	Schema = 3
	// minIndex is the bucket of slot 0: up to 2^-20 s.
	minIndex = -20 << Schema
	// Slots is the number of slots; the last holds everything above 2^10 s.
	Slots = 30<<Schema + 2
)

// Bounds are the classic buckets' upper bounds in seconds; the kernel counts them apart,
// because none of them is a bound of a native bucket.
var Bounds = [...]float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5}

// Buckets returns the native buckets by index, empty ones left out.
func Buckets(slots []uint64) map[int]int64 {
	buckets := map[int]int64{}
	for slot, n := range slots {
		if n > 0 {
			buckets[minIndex+slot] = int64(n)
		}
	}
	return buckets
}

// New returns a histogram with native and classic buckets. classic has one count per bound
// and one for the rest, not cumulative. sum is in seconds. created is when counting began.
func New(desc *prometheus.Desc, slots, classic []uint64, sum float64, created time.Time, labels ...string) (prometheus.Metric, error) {
	if len(slots) > Slots || len(classic) != len(Bounds)+1 {
		return nil, fmt.Errorf("histogram with %d slots and %d classic buckets, want at most %d and %d",
			len(slots), len(classic), Slots, len(Bounds)+1)
	}
	buckets := Buckets(slots)
	var count uint64
	for _, n := range buckets {
		count += uint64(n)
	}
	native, err := prometheus.NewConstNativeHistogram(desc, count, sum, buckets, nil, 0, Schema, 0, created, labels...)
	if err != nil {
		return nil, err
	}
	m := &metric{Metric: native}
	var cumulated uint64
	for i, bound := range Bounds {
		cumulated += classic[i]
		m.classic = append(m.classic, &dto.Bucket{UpperBound: &bound, CumulativeCount: new(cumulated)})
	}
	return m, nil
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
