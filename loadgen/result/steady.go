package result

import (
	"math"
	"time"
)

const (
	steadyInterval = time.Second // between two samples of the rate
	steadySamples  = 6           // that are judged together
	steadyTrend    = 0.1         // of the rate, between the first and the second half of them
)

// steadiness watches a load's rate: it is steady when the second half of the last samples is within a
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
	if passed < steadyInterval {
		return false
	}
	s.rates = append(s.rates, float64(completed-s.count)/passed.Seconds())
	s.at, s.count = now, completed
	if len(s.rates) < steadySamples {
		return false
	}
	last := s.rates[len(s.rates)-steadySamples:]
	first, second := mean(last[:steadySamples/2]), mean(last[steadySamples/2:])
	if first <= 0 || second <= 0 {
		return false
	}
	// Of n random events the count varies by the root of n.
	noise := 2 * math.Sqrt(1/(first*steadySamples/2)+1/(second*steadySamples/2))
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
