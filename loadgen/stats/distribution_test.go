package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// Every slot's middle must fall into the slot itself, and slots must not overlap.
func TestSlotsRoundTrip(t *testing.T) {
	for i := range 40 * sub {
		if got := slot(middle(i)); got != i {
			t.Fatalf("slot(middle(%d)) = %d, middle %v", i, got, middle(i))
		}
	}
	last := -1
	for d := time.Duration(1); d < time.Hour; d = d*101/100 + 1 {
		if s := slot(d); s < last {
			t.Fatalf("slot(%v) = %d, below the slot of a shorter duration, %d", d, s, last)
		} else {
			last = s
		}
	}
}

// Quantiles must be within a slot's width of those of the sorted samples.
func TestQuantilesAgainstSortedSamples(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var d, other Distribution
	var all []time.Duration
	for i := range 20000 {
		v := time.Duration(math.Exp(random.NormFloat64()*0.8) * float64(time.Millisecond))
		all = append(all, v)
		if i%2 == 0 {
			d.Observe(v)
		} else {
			other.Observe(v)
		}
	}
	d.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0.01, 0.5, 0.95, 0.99, 0.999, 1} {
		want := all[int(math.Ceil(q*float64(len(all))))-1]
		got := d.Quantile(q)
		if ratio := float64(got) / float64(want); ratio < 0.984 || ratio > 1.016 {
			t.Errorf("q%v = %v, of the sorted samples %v", q, got, want)
		}
		low, high := d.Interval(q)
		if low > got || high < got {
			t.Errorf("q%v = %v outside its interval %v to %v", q, got, low, high)
		}
	}
	if d.Count() != 20000 || d.Max() != all[len(all)-1] {
		t.Errorf("count %d, max %v; want 20000, %v", d.Count(), d.Max(), all[len(all)-1])
	}
	above := 20000 - slices.IndexFunc(all, func(v time.Duration) bool { return v > 3*time.Millisecond })
	if got := int(d.Above(3 * time.Millisecond)); got < above*95/100 || got > above*105/100 {
		t.Errorf("%d above 3 ms, of the sorted samples %d", got, above)
	}
}

// The 95 % interval must hold the true quantile in about 95 of 100 runs.
func TestIntervalCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	truth := time.Duration(-math.Log(0.05) * float64(time.Millisecond)) // p95 of an exponential
	held := 0
	for range 400 {
		var d Distribution
		for range 500 {
			d.Observe(time.Duration(random.ExpFloat64() * float64(time.Millisecond)))
		}
		if low, high := d.Interval(0.95); low <= truth && truth <= high {
			held++
		}
	}
	if held < 368 || held > 398 { // 92 % to 99.5 %
		t.Errorf("the interval held the true quantile in %d of 400 runs", held)
	}
}

func TestEmptyDistribution(t *testing.T) {
	var d Distribution
	low, high := d.Interval(0.5)
	if d.Quantile(0.99) != 0 || d.Mean() != 0 || d.Stddev() != 0 || low != 0 || high != 0 {
		t.Error("an empty distribution must answer zero")
	}
}
