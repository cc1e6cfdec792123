package result

import (
	"testing"
	"time"
)

// TestSteady feeds rates, a sample a second, and checks when they are called steady.
func TestSteady(t *testing.T) {
	for name, c := range map[string]struct {
		rate   func(second int) float64
		within [2]int // seconds; 0, 0: never within a minute
	}{
		"at once":       {func(int) float64 { return 1000 }, [2]int{6, 7}},
		"fills a cache": {func(s int) float64 { return 100 + 900*min(float64(s)/20, 1) }, [2]int{14, 27}},
		"rises on":      {func(s int) float64 { return 100 * float64(s+1) * float64(s+1) }, [2]int{0, 0}},
		"stalls":        {func(int) float64 { return 0 }, [2]int{0, 0}},
		"few events":    {func(s int) float64 { return 3 + float64(s%2) }, [2]int{6, 8}},
	} {
		var s steadiness
		count, at := 0.0, time.Unix(1000, 0)
		got := 0
		s.steady(at, 0)
		for second := 1; second <= 60 && got == 0; second++ {
			count += c.rate(second)
			at = at.Add(time.Second)
			if s.steady(at, uint64(count)) {
				got = second
			}
		}
		if got < c.within[0] || got > c.within[1] {
			t.Errorf("%s: steady after %d s, want %v", name, got, c.within)
		}
	}
}
