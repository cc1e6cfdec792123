package baseline

import (
	"math"
	"time"

	"github.com/plumbline/plumbline/loadgen/stats"
)

const (
	// Slice is the piece of a run by which hours are put together: an hour begins with each.
	Slice = 5 * time.Minute
	// perHour is how many slices an hour has.
	perHour = int(time.Hour / Slice)
	// leastSlices is the shortest run that shows how its hours differ. leastPairs is how many overlapping hours must
	// have one before them, which no expected window spoils either.
	leastSlices, leastPairs = 6 * perHour, 2 * perHour
)

// Hours is how much the hours of a run differ from all of it. An hour is as slow as its lowest
// quarter of response times, which checkpoints, bursts and tails hardly move.
type Hours struct {
	// Max is how many times as slow as the whole run its slowest hour was.
	Max float64
	// Slow is the standard deviation of what an hour has in common with the next one: of what wanders
	// for hours, without the noise of minutes, which a limit's own margin is for.
	Slow float64
}

// CompareHours compares the hours of a run of n slices, each hour a slice after the one before. lower returns the lower
// quartile of the slices from one to before another; expected reports which slices are known to be slow, whose hours
// are left out. It returns nil if there is too little.
func CompareHours(n int, lower func(from, to int) float64, expected func(slice int) bool) *Hours {
	if n < leastSlices {
		return nil
	}
	whole := lower(0, n)
	ratios := make([]float64, n) // of the hour that ends with a slice; 0: none
	var h Hours
	mean, hours := 0.0, 0
	clear := 0 // slices in a row that were not expected to be slow
	for i := range n {
		if clear++; expected(i) {
			clear = 0
		}
		if clear < perHour {
			continue
		}
		if ratio := lower(i+1-perHour, i+1) / whole; ratio > 0 && !math.IsInf(ratio, 1) {
			ratios[i] = ratio
			mean += ratio
			hours++
			h.Max = max(h.Max, ratio)
		}
	}
	mean /= float64(hours)
	common, pairs := 0.0, 0
	for i := perHour; i < n; i++ {
		if now, before := ratios[i], ratios[i-perHour]; now > 0 && before > 0 {
			common += (now - mean) * (before - mean)
			pairs++
		}
	}
	if pairs < leastPairs {
		return nil
	}
	h.Slow = math.Sqrt(max(0, common/float64(pairs)))
	return &h
}

// sliced is a run in slices.
type sliced struct {
	length time.Duration
	began  time.Time
	sofar  stats.Distribution
	slices []stats.Distribution
}

// add takes the run's response times at now, and keeps a slice whenever one is over, at the end of
// the run also one that nearly is.
func (s *sliced) add(now time.Time, end bool, response func() stats.Distribution) {
	left := time.Duration(len(s.slices)+1)*s.length - now.Sub(s.began)
	if left > 0 && !(end && left < s.length/2) {
		return
	}
	all := response()
	s.slices = append(s.slices, all.Since(&s.sofar))
	s.sofar = all
}

// hours compares the run's hours.
func (s *sliced) hours(windows []Window) *Hours {
	return CompareHours(len(s.slices),
		func(from, to int) float64 {
			var all stats.Distribution
			for i := range s.slices[from:to] {
				all.Merge(&s.slices[from+i])
			}
			return all.Quantile(0.25).Seconds()
		},
		func(i int) bool {
			from := s.began.Add(time.Duration(i) * s.length)
			return share(windows, from, from.Add(s.length)) > 0
		})
}
