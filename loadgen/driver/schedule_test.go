package driver

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// Constant arrivals are exact for days; Poisson arrivals have the right mean and spread.
func TestSchedules(t *testing.T) {
	s := newSchedule(Constant, 3, nil)
	var last time.Duration
	for range 3*86400*10 + 1 {
		last = s.next()
	}
	if last != 10*24*time.Hour {
		t.Errorf("after ten days at 3/s the schedule is off by %v", last-10*24*time.Hour)
	}

	// Counts in intervals of a Poisson process have a Poisson distribution: chi square over the
	// cells 0…9 and more, at a mean of 5, 10,000 intervals.
	s = newSchedule(Poisson, 5, rand.New(rand.NewPCG(7, 7)))
	const intervals = 10000
	counts := make([]int, intervals)
	for at := s.next(); at < intervals*time.Second; at = s.next() {
		counts[int(at/time.Second)]++
	}
	var cells [11]float64
	for _, n := range counts {
		cells[min(n, 10)]++
	}
	p, rest, chi := math.Exp(-5), 1.0, 0.0
	for k := range cells {
		expected := p * intervals
		if k == 10 {
			expected = rest * intervals
		}
		chi += (cells[k] - expected) * (cells[k] - expected) / expected
		rest -= p
		p *= 5 / float64(k+1)
	}
	t.Logf("chi square %.1f with 10 degrees of freedom", chi)
	if chi > 29.6 { // one in a thousand; the seed is fixed
		t.Errorf("chi square %.1f: these are no Poisson arrivals", chi)
	}
}
