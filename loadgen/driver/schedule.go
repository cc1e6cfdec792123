package driver

import (
	"math/rand/v2"
	"time"
)

// Arrivals names how the intended starts are spread.
type Arrivals string

// The kinds of arrivals.
const (
	// Constant arrivals are one every 1/rate seconds.
	Constant Arrivals = "constant"
	// Poisson arrivals are independent of each other, as those of many users are.
	Poisson Arrivals = "poisson"
)

// schedule gives the intended starts, each as an offset from the start of the run. It never
// reads a clock: that the last transaction was slow moves none of the next.
type schedule struct {
	arrivals Arrivals
	rate     float64
	random   *rand.Rand
	n        uint64
	at       float64 // seconds
}

func newSchedule(arrivals Arrivals, rate float64, random *rand.Rand) *schedule {
	return &schedule{arrivals: arrivals, rate: rate, random: random}
}

// next returns the next intended start.
func (s *schedule) next() time.Duration {
	if s.arrivals == Poisson {
		s.at += s.random.ExpFloat64() / s.rate
	} else {
		// From the count, not from the last one: rounding must not add up over days.
		s.at = float64(s.n) / s.rate
	}
	s.n++
	return time.Duration(s.at * float64(time.Second))
}
