package result

import (
	"math"
	"time"
)

const (
	steadySample = time.Second // between two looks at the rate
	steadyLooks  = 6           // that are judged together
	steadyTrend  = 0.1         // of the rate, between the first and the second half of them
)

// steadiness watches a load's rate: it is steady when the second half of the last looks is within a
// tenth of the first half, and not below what noise of that many events explains.
type steadiness struct {
	at    time.Time
	count uint64
	rates []float64
	was   bool
}

// steady takes the number of completed events at a moment.
func (s *steadiness) steady(now time.Time, completed uint64) bool {
	if s.at.IsZero() {
		s.at, s.count = now, completed
		return false
	}
	passed := now.Sub(s.at)
	if passed < steadySample {
		return false
	}
	s.rates = append(s.rates, float64(completed-s.count)/passed.Seconds())
	s.at, s.count = now, completed
	if len(s.rates) < steadyLooks {
		return false
	}
	last := s.rates[len(s.rates)-steadyLooks:]
	first, second := mean(last[:steadyLooks/2]), mean(last[steadyLooks/2:])
	if first <= 0 || second <= 0 {
		return false
	}
	// Of n random events the count varies by the root of n.
	noise := 2 * math.Sqrt(1/(first*steadyLooks/2)+1/(second*steadyLooks/2))
	s.was = math.Abs(second/first-1) <= math.Max(steadyTrend, noise)
	return s.was
}

func mean(x []float64) float64 {
	sum := 0.0
	for _, v := range x {
		sum += v
	}
	return sum / float64(len(x))
}
