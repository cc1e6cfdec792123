package baseline

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/stats"
)

// Quick noise is not taken for slow noise; slow noise of a size is reported with its size.
func TestCompareHours(t *testing.T) {
	never := func(int) bool { return false }
	// Levels of slices: noise of sigma whose correlation a slice later is phi.
	noise := func(seed uint64, n int, sigma, phi float64) []float64 {
		r := rand.New(rand.NewPCG(seed, 7))
		x, levels := sigma*r.NormFloat64(), make([]float64, n)
		for i := range levels {
			x = phi*x + sigma*math.Sqrt(1-phi*phi)*r.NormFloat64()
			levels[i] = math.Exp(x)
		}
		return levels
	}
	compare := func(levels []float64, expected func(int) bool) *Hours {
		return CompareHours(len(levels), func(from, to int) float64 {
			mean := 0.0
			for _, x := range levels[from:to] {
				mean += x / float64(to-from)
			}
			return mean
		}, expected)
	}
	quick, slow := 0.0, 0.0
	for seed := range uint64(20) {
		quick += compare(noise(seed, 288, 0.1, 0.2), never).Slow / 20
		slow += compare(noise(seed, 288, 0.1, math.Exp(-1.0/24)), never).Slow / 20
	}
	if quick > 0.015 || slow < 0.045 || slow > 0.1 {
		t.Errorf("quick noise of 10 %% wanders by %.3f, noise of two hours by %.3f", quick, slow)
	}
	// A slow hour counts where nobody expects it, and nothing near it where somebody does.
	levels := noise(1, 288, 0.01, 0)
	for i := 24; i < 36; i++ {
		levels[i] = 2
	}
	if h := compare(levels, never); h.Max < 1.8 {
		t.Errorf("the slowest hour of a run with one twice as slow is %.2f", h.Max)
	}
	if h := compare(levels, func(i int) bool { return i >= 24 && i < 36 }); h.Max > 1.02 {
		t.Errorf("the slowest hour is %.2f although the slow one was expected", h.Max)
	}
	// Too little for a comparison returns none.
	if h := compare(levels[:71], never); h != nil {
		t.Errorf("less than six hours give %+v", *h)
	}
	if h := compare(levels, func(i int) bool { return i%11 == 0 }); h != nil {
		t.Errorf("no hour without an expected window gives %+v", *h)
	}
	if h := compare(make([]float64, 288), never); h != nil {
		t.Errorf("no response at all gives %+v", *h)
	}
}

// A run is cut in slices as it goes on; the last may lack a moment.
func TestSliced(t *testing.T) {
	began := time.Date(2026, 11, 22, 1, 0, 0, 0, time.UTC)
	run := sliced{length: Slice, began: began}
	var all stats.Distribution
	for second := 1; second <= 6*3600-1; second++ {
		slowness := time.Duration(1)
		if second > 3600 && second <= 7200 {
			slowness = 3
		}
		all.ObserveN(slowness*time.Millisecond, 10)
		run.add(began.Add(time.Duration(second)*time.Second), second == 6*3600-1, all.Clone)
	}
	if len(run.slices) != 72 {
		t.Fatalf("six hours but a second are %d slices", len(run.slices))
	}
	counted := uint64(0)
	for _, s := range run.slices {
		counted += s.Count()
	}
	if counted != all.Count() {
		t.Errorf("the slices have %d of %d responses", counted, all.Count())
	}
	backup, err := ParseWindow("backup 02:00-03:00 UTC", 3)
	if err != nil {
		t.Fatal(err)
	}
	if h := run.hours(nil); h == nil || h.Max < 2 {
		t.Errorf("an hour three times as slow, undeclared, gives %+v", h)
	}
	if h := run.hours([]Window{backup}); h == nil || h.Max > 1.01 {
		t.Errorf("declared, it gives %+v", h)
	}
}
