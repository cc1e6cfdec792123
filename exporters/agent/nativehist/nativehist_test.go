package nativehist

import (
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// A bound holds what is in the native buckets up to it, and nothing of the next.
func TestClassic(t *testing.T) {
	slots := make([]uint64, Slots)
	// The slots of up to 2^-20 s, of 2^-10 s itself, of a little more, and of more than 2^10 s.
	slots[0], slots[10<<Schema], slots[10<<Schema+1], slots[Slots-1] = 1, 10, 100, 1000
	m, err := New(prometheus.NewDesc("x_seconds", "", nil, nil), slots, 1.5, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	var out dto.Metric
	if err := m.Write(&out); err != nil {
		t.Fatal(err)
	}
	h := out.GetHistogram()
	if h.GetSampleCount() != 1111 || h.GetSampleSum() != 1.5 || h.GetSchema() != Schema {
		t.Errorf("count %d, sum %g, schema %d", h.GetSampleCount(), h.GetSampleSum(), h.GetSchema())
	}
	if len(h.Bucket) != len(Bounds) || Bounds[0] != math.Exp2(-14) || Bounds[len(Bounds)-1] != 32 {
		t.Fatalf("%d buckets, of bounds %v", len(h.Bucket), Bounds)
	}
	for _, b := range h.Bucket {
		want := uint64(111)
		switch bound := b.GetUpperBound(); {
		case bound < math.Exp2(-10):
			want = 1
		case bound == math.Exp2(-10):
			want = 11
		}
		if b.GetCumulativeCount() != want {
			t.Errorf("up to %g s: %d, want %d", b.GetUpperBound(), b.GetCumulativeCount(), want)
		}
	}
	// Those bounds are the native buckets', whose index is the exponent in eighths.
	index := int32(0)
	for i, span := range h.PositiveSpan {
		index += span.GetOffset()
		if i == 1 && index != -10<<Schema {
			t.Errorf("the second span begins at bucket %d, want that of 2^-10 s", index)
		}
		index += int32(span.GetLength())
	}
	if _, err := New(prometheus.NewDesc("x_seconds", "", nil, nil), make([]uint64, Slots+1), 0, time.Now()); err == nil {
		t.Error("more slots than there are")
	}
}
