package compare

import (
	"fmt"
	"math"

	"github.com/plumbline/plumbline/loadgen/internal/words"
)

// words is a line's verdict as a sentence: what it is, how large it is, and what could not have
// been seen.
func (l Line) words(p pair) string {
	time, unpaired := "time", ""
	if p.of != "" {
		time = "time as a multiple of " + p.of + "'s"
	}
	if n := l.First.Unpaired + l.Second.Unpaired; n > 0 {
		unpaired = fmt.Sprintf("; %d and %d have none of %s's beside them and are left out", l.First.Unpaired, l.Second.Unpaired, p.of)
	}
	if l.Difference == nil {
		return fmt.Sprintf("too few or too uneven %s for a verdict: %d and %d%s", p.values, l.First.Values, l.Second.Values, unpaired)
	}
	d := l.Difference
	between := fmt.Sprintf("between %s and %s", words.Change(d.Low, l.limits...), words.Change(d.High, l.limits...))
	if p.of != "" && (l.Verdict == Same || l.Verdict == Unsure) {
		between = "as a multiple of " + p.of + "'s, " + between
	}
	switch l.Verdict {
	case Slower:
		return fmt.Sprintf("surely slower: the second's %s is %s, %s; of two %s, one of each, the second's is the slower in %s", time, words.Change(d.Ratio, l.limits...), between, p.values, often(l.Superiority)) + unpaired
	case Faster:
		return fmt.Sprintf("surely faster: the second's %s is %s, %s; of two %s, one of each, the second's is the faster in %s", time, words.Change(d.Ratio, l.limits...), between, p.values, often(1-l.Superiority)) + unpaired
	case Same:
		return fmt.Sprintf("no difference that counts: %s; a slowdown of %s would have been seen", between, l.seen()) + unpaired
	}
	return fmt.Sprintf("inconclusive: %s; a slowdown under %s could not have been seen", between, l.seen()) + unpaired
}

// seen prints the least slowdown that would have been seen.
func (l Line) seen() string {
	var limits []float64
	for _, limit := range l.limits {
		limits = append(limits, limit-1)
	}
	return words.Percent(l.Seen, limits...)
}

// often prints a share as a count of a hundred; only a share of 1 is all of them.
func often(share float64) string {
	n := int(math.Round(share * 100))
	if n == 100 && share < 1 {
		n = 99
	}
	return fmt.Sprintf("%d of 100 cases", n)
}
