package predict

import "math"

// unknown is the deviation of a time's logarithm of which only the bucket is known.
func unknown(low, high float64) float64 {
	switch {
	case high <= low:
		return 0
	case low <= 0:
		return 1 / math.Sqrt(3) // as of a time that is anywhere from 0 on: that, of its mean
	}
	return math.Log(high/low) / math.Sqrt(12)
}

// unsure is what the bucket of a quantile leaves unknown.
func (h Histogram) unsure(q float64) float64 {
	at := q * h.Count()
	for i, c := range h.Counts {
		if c > 0 && at <= c {
			return unknown(h.bucket(i))
		}
		at -= c
	}
	return 0
}

// unsureMean is what the bucket leaves unknown that most of the time was spent in.
func (h Histogram) unsureMean() float64 {
	most, left := 0.0, 0.0
	for i, c := range h.Counts {
		low, high := h.bucket(i)
		if spent := c * within(low, high, 0.5); spent > most {
			most, left = spent, unknown(low, high)
		}
	}
	return left
}

// coarse is what the buckets of a class's operations leave unknown of the time that a kind waits for them.
func (f *fitted) coarse(i int, ops map[string]Operation) float64 {
	sum, squares := 0.0, 0.0
	add := func(name string, times float64) {
		if o := ops[name]; times > 0 && o.Times.Count() > 0 {
			spent := times * o.Times.Mean()
			sum += spent
			squares += math.Pow(spent*o.Times.unsureMean(), 2)
		}
	}
	for _, name := range []string{"write", "flush", "sync"} {
		add(name, float64(f.flush[name])*f.kinds[i].flushes)
	}
	add("read", f.kinds[i].reads)
	if sum == 0 {
		return 0
	}
	return math.Sqrt(squares) / sum
}

// inStorage is the part of a kind's time that is storage's in a simulation.
func (r run) inStorage(i int) float64 {
	sum := 0.0
	for _, v := range r.times[i] {
		sum += v
	}
	if sum == 0 {
		return 0
	}
	return min(r.stored[i]*float64(len(r.times[i]))/sum, 1)
}
