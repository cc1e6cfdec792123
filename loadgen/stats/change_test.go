package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// noise is a series of a level with 10 % noise.
func noise(random *rand.Rand, n int, level float64) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = level * math.Exp(random.NormFloat64()*0.1)
	}
	return x
}

// Steps of 30 % are found where they are; steady series give at most a rare false one.
func TestChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	extra := 0
	for range 20 {
		x := append(append(noise(random, 60, 1), noise(random, 40, 1.3)...), noise(random, 50, 0.9)...)
		got := Changes(x)
		for _, want := range []int{60, 100} {
			if !slices.ContainsFunc(got, func(c Change) bool { return abs(c.At-want) <= 5 }) {
				t.Errorf("no change at %d in %+v", want, got)
			}
		}
		extra += len(got) - 2
		if r := got[0].After / got[0].Before; r < 1.2 || r > 1.4 {
			t.Errorf("a step of 30 %% is reported as %v", r)
		}
	}
	// A chance outlier beside a step is now and then found as a step of its own.
	if extra > 5 {
		t.Errorf("%d changes too many in 20 series", extra)
	}
	found := 0
	for range 100 {
		found += len(Changes(noise(random, 150, 0.001)))
	}
	if found > 3 {
		t.Errorf("%d changes in 100 steady series", found)
	}
	if got := Changes([]float64{1, 2, math.NaN(), 0}); got != nil {
		t.Errorf("%v from a handful of points", got)
	}
}

func abs(n int) int { return max(n, -n) }

// What was written can be read and merged as if it had never been apart.
func TestDistributionJSON(t *testing.T) {
	var d Distribution
	for i := range 1000 {
		d.Observe(time.Duration(i*i) * time.Microsecond)
	}
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var back Distribution
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if back.Count() != d.Count() || back.Mean() != d.Mean() || back.Max() != d.Max() || back.Quantile(0.9) != d.Quantile(0.9) {
		t.Errorf("read back %d, %v, %v; wrote %d, %v, %v", back.Count(), back.Mean(), back.Max(), d.Count(), d.Mean(), d.Max())
	}
	for _, bad := range []string{`{"n":2,"slots":[[5,1]]}`, `{"n":1,"slots":[[999999999,1]]}`, `[]`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s was read", bad)
		}
	}
}
