package stats

import (
	"testing"
	"time"
)

// since is what run counts of values that come after it has counted something else.
func since(before, values []time.Duration) Distribution {
	var run Distribution
	for _, v := range before {
		run.Observe(v)
	}
	earlier := run.Clone()
	for _, v := range values {
		run.Observe(v)
	}
	return run.Since(&earlier)
}

// The quantiles of an interval are those of its own values, though it has few and the run had a longer one before.
func TestSinceHasQuantilesOfItsOwn(t *testing.T) {
	slow := []time.Duration{time.Millisecond, 20 * time.Second}
	for n := 1; n <= 25; n++ {
		var own Distribution
		var values []time.Duration
		for i := range n {
			v := time.Duration(i+1) * 1_300 * time.Microsecond
			values = append(values, v)
			own.Observe(v)
		}
		d := since(slow, values)
		if d.Count() != uint64(n) {
			t.Fatalf("%d values, want %d", d.Count(), n)
		}
		near := func(name string, got, want time.Duration) {
			t.Helper()
			if ratio := float64(got) / float64(want); ratio < 0.984 || ratio > 1.016 {
				t.Errorf("%s of %d values is %v, want %v", name, n, got, want)
			}
		}
		near("maximum", d.Max(), own.Max())
		for _, q := range []float64{0.5, 0.9, 0.95, 0.99, 0.999, 1} {
			near("quantile", d.Quantile(q), own.Quantile(q))
			low, high := d.Interval(q)
			wantLow, wantHigh := own.Interval(q)
			near("lower bound", low, wantLow)
			near("upper bound", high, wantHigh)
		}
	}
}

// A maximum that came in the interval is known exactly, one that came before is not the interval's, and of nothing
// there is none.
func TestSinceMax(t *testing.T) {
	ms := time.Millisecond
	if d := since([]time.Duration{2 * ms}, []time.Duration{ms, 1_234_567}); d.Max() < 1_215_000 || d.Max() > 1_254_000 {
		t.Errorf("maximum %v, want about 1.23 ms", d.Max())
	}
	if d := since([]time.Duration{ms}, []time.Duration{ms, 1_234_567}); d.Max() != 1_234_567 {
		t.Errorf("maximum %v, want 1.234567ms exactly", d.Max())
	}
	if d := since([]time.Duration{1_234_567}, []time.Duration{ms, 1_234_567}); d.Max() > 1_234_567 || d.Max() < 1_215_000 {
		t.Errorf("maximum %v, want about 1.23 ms and not more", d.Max())
	}
	d := since([]time.Duration{ms, time.Second}, nil)
	if low, high := d.Interval(0.95); d.Max() != 0 || d.Quantile(0.95) != 0 || low != 0 || high != 0 {
		t.Errorf("of nothing: maximum %v, p95 %v, %v to %v", d.Max(), d.Quantile(0.95), low, high)
	}
}
