// Package stats holds the little statistics loadgen needs: a latency distribution fine enough
// for a printed result, quantiles with their confidence intervals, and change points.
package stats

import (
	"math"
	"math/bits"
	"slices"
	"time"
)

const (
	// subBits gives 64 slots an octave: a quantile is off by less than 1.6 %.
	subBits = 6
	sub     = 1 << subBits
)

// Distribution counts durations in slots of about 1.6 % width, and keeps their exact number
// and sum. The zero value is empty and ready.
type Distribution struct {
	slots []uint64
	// few are the slots that are not empty, in their order, of a distribution that was read and is not counted into:
	// days of them are held in memory. Each is an index and, below it in fewBits, a count. Then slots is empty.
	few   []uint64
	n     uint64
	sum   float64
	sumsq float64
	max   time.Duration
}

const fewBits = 48

// each calls f with the slots that are not empty, in their order.
func (d *Distribution) each(f func(i int, n uint64) bool) {
	for _, v := range d.few {
		if !f(int(v>>fewBits), v&(1<<fewBits-1)) {
			return
		}
	}
	for i, n := range d.slots {
		if n > 0 && !f(i, n) {
			return
		}
	}
}

// grow makes room to count up to slot i.
func (d *Distribution) grow(i int) {
	size := len(d.slots)
	if len(d.few) > 0 {
		size = int(d.few[len(d.few)-1]>>fewBits) + 1
	}
	if i < len(d.slots) && len(d.few) == 0 {
		return
	}
	grown := make([]uint64, max(size, i+sub))
	d.each(func(i int, n uint64) bool {
		grown[i] = n
		return true
	})
	d.slots, d.few = grown, nil
}

// Pack makes a distribution small that is not counted into any more: one of many that are held in memory.
func (d *Distribution) Pack() {
	var few []uint64
	fits := true
	d.each(func(i int, n uint64) bool {
		few = append(few, uint64(i)<<fewBits|n)
		fits = n < 1<<fewBits
		return fits
	})
	if fits {
		d.few, d.slots = slices.Clip(few), nil
	}
}

// slot returns the index of d: exact below 64 ns, then 64 to each power of two.
func slot(d time.Duration) int {
	v := uint64(max(d, 0))
	if v < sub {
		return int(v)
	}
	shift := bits.Len64(v) - 1 - subBits
	return shift<<subBits + int(v>>shift)
}

// middle is the duration in the middle of a slot.
func middle(i int) time.Duration {
	if i < 2*sub {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	low := uint64(sub+i&(sub-1)) << shift
	return time.Duration(low + 1<<shift/2)
}

// Observe counts d. A negative duration (a clock step) counts as zero.
func (d *Distribution) Observe(v time.Duration) { d.ObserveN(v, 1) }

// ObserveN counts v n times.
func (d *Distribution) ObserveN(v time.Duration, n uint64) {
	v = max(v, 0)
	i := slot(v)
	d.grow(i)
	d.slots[i] += n
	d.n += n
	s := v.Seconds()
	d.sum += s * float64(n)
	d.sumsq += s * s * float64(n)
	d.max = max(d.max, v)
}

// Count is the number of durations.
func (d *Distribution) Count() uint64 { return d.n }

// Max is the longest duration.
func (d *Distribution) Max() time.Duration { return d.max }

// Mean is the exact mean in seconds, 0 if empty.
func (d *Distribution) Mean() float64 {
	if d.n == 0 {
		return 0
	}
	return d.sum / float64(d.n)
}

// Stddev is the standard deviation in seconds.
func (d *Distribution) Stddev() float64 {
	if d.n == 0 {
		return 0
	}
	m := d.Mean()
	return math.Sqrt(max(d.sumsq/float64(d.n)-m*m, 0))
}

// Quantile returns the duration that a share q of all do not exceed, 0 if empty. Of fewer than 1/(1-q) values it is the
// longest, such as a p95 of fewer than 20.
func (d *Distribution) Quantile(q float64) time.Duration {
	return d.rank(uint64(math.Ceil(q * float64(d.n))))
}

// rank returns the r-th shortest duration, counted from 1.
func (d *Distribution) rank(r uint64) time.Duration {
	if d.n == 0 {
		return 0
	}
	r = min(max(r, 1), d.n)
	if r == d.n {
		return d.max
	}
	var seen uint64
	at := d.max
	d.each(func(i int, n uint64) bool {
		if seen += n; seen < r {
			return true
		}
		at = min(middle(i), d.max)
		return false
	})
	return at
}

// Interval returns the bounds within which the true q quantile lies with 95 % confidence, from
// the binomial distribution of the rank; it assumes independent samples, so it is too narrow
// when slow ones come in bunches.
func (d *Distribution) Interval(q float64) (low, high time.Duration) {
	n := float64(d.n)
	spread := 1.96 * math.Sqrt(n*q*(1-q))
	return d.rank(uint64(math.Floor(max(n*q-spread, 1)))), d.rank(uint64(math.Ceil(min(n*q+spread+1, n))))
}

// Above returns how many were longer than limit, exact to the slot's width.
func (d *Distribution) Above(limit time.Duration) uint64 {
	var above uint64
	from := slot(limit)
	d.each(func(i int, n uint64) bool {
		if i > from {
			above += n
		}
		return true
	})
	return above
}

// Merge adds everything counted in o.
func (d *Distribution) Merge(o *Distribution) {
	o.each(func(i int, n uint64) bool {
		d.grow(i)
		d.slots[i] += n
		return true
	})
	d.n += o.n
	d.sum += o.sum
	d.sumsq += o.sumsq
	d.max = max(d.max, o.max)
}

// Since returns what was counted since d was earlier. Its Max, which is also the quantile of few values, is exact if it
// is longer than any before; one that is not is known to its slot's width.
func (d *Distribution) Since(earlier *Distribution) Distribution {
	c := d.Clone()
	earlier.each(func(i int, n uint64) bool {
		c.grow(i)
		c.slots[i] -= n
		return true
	})
	c.n -= earlier.n
	c.sum -= earlier.sum
	c.sumsq -= earlier.sumsq
	if d.max <= earlier.max {
		c.max = c.longest()
	}
	return c
}

// longest is the middle of the last slot that is not empty, at most the maximum; 0 if all are.
func (d *Distribution) longest() time.Duration {
	var last time.Duration
	d.each(func(i int, _ uint64) bool {
		last = min(middle(i), d.max)
		return true
	})
	return last
}

// Clone returns an independent copy.
func (d *Distribution) Clone() Distribution {
	c := *d
	c.slots, c.few = slices.Clone(d.slots), slices.Clone(d.few)
	return c
}
