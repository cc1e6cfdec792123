// Package detector measures how good the regression alerts are: it makes histograms of response
// times with seeded noise of several kinds, healthy and with a step in them, has promtool
// evaluate the very rules files over them, and counts delays and false minutes.
package detector

import (
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
)

// rate is the load in transactions per second: that of a canary, by default.
const rate = 10

// noise is one kind of healthy behaviour. factor is by how much transactions of a minute are
// slower than the median; share is how many of them are slow in their own way, slow by how much.
type noise struct {
	name string
	// wild means that it varies so much that +30 % is normal, and need not be found.
	wild bool
	// expected are the windows that are declared.
	expected []string
	make     func(r *rand.Rand) func(minute int) minuteNoise
}

type minuteNoise struct {
	factor, share float64
	slow          func() float64
}

// drift is an AR(1) process in minutes: what caches, neighbours and the scheduler do.
func drift(r *rand.Rand, sigma, phi float64) func() float64 {
	x := sigma * r.NormFloat64()
	return func() float64 {
		x = phi*x + sigma*math.Sqrt(1-phi*phi)*r.NormFloat64()
		return math.Exp(x)
	}
}

// noises are the kinds. The response times within a minute are always lognormal, sigma 0.5.
var noises = []noise{
	{name: "steady", make: func(*rand.Rand) func(int) minuteNoise {
		return func(int) minuteNoise { return minuteNoise{factor: 1} }
	}},
	// The noise of the published comparison: 12 %, correlated over some five minutes.
	{name: "drift", make: func(r *rand.Rand) func(int) minuteNoise {
		d := drift(r, 0.12, 0.8)
		return func(int) minuteNoise { return minuteNoise{factor: d()} }
	}},
	// Every two hours or so a minute or two in which everything takes four times as long.
	{name: "bursts", make: func(r *rand.Rand) func(int) minuteNoise {
		d, left := drift(r, 0.06, 0.8), 0
		return func(int) minuteNoise {
			if left--; left < 0 && r.Float64() < 1.0/120 {
				left = r.IntN(2)
			}
			if left >= 0 {
				return minuteNoise{factor: 4 * d()}
			}
			return minuteNoise{factor: d()}
		}
	}},
	// Slower by day than by night, 10 % to either side.
	{name: "daily", make: func(r *rand.Rand) func(int) minuteNoise {
		d, phase := drift(r, 0.06, 0.8), r.Float64()
		return func(m int) minuteNoise {
			return minuteNoise{factor: d() * (1 + 0.1*math.Sin(2*math.Pi*(float64(m)/1440+phase)))}
		}
	}},
	// Every five minutes 40 % of a minute's transactions meet a checkpoint.
	{name: "checkpoint", make: func(r *rand.Rand) func(int) minuteNoise {
		d := drift(r, 0.06, 0.8)
		return func(m int) minuteNoise {
			n := minuteNoise{factor: d(), slow: func() float64 { return 2.5 }}
			if m%5 == 0 {
				n.share = 0.4
			}
			return n
		}
	}},
	// One transaction in fifty is slow without bound: Pareto, alpha 1.5.
	{name: "heavy tail", make: func(r *rand.Rand) func(int) minuteNoise {
		d := drift(r, 0.06, 0.8)
		return func(int) minuteNoise {
			return minuteNoise{factor: d(), share: 0.02, slow: func() float64 { return 2 * math.Pow(1-r.Float64(), -1/1.5) }}
		}
	}},
	// A neighbour, a cache or the room's temperature: 10 %, correlated over two hours.
	{name: "wander", wild: true, make: func(r *rand.Rand) func(int) minuteNoise {
		d := drift(r, 0.1, math.Exp(-1.0/120))
		return func(int) minuteNoise { return minuteNoise{factor: d()} }
	}},
	// Every night 25 minutes in which all takes half as long again.
	{name: "backup", expected: []string{"nightly backup 02:00-02:30 UTC"}, make: func(r *rand.Rand) func(int) minuteNoise {
		d := drift(r, 0.06, 0.8)
		return func(m int) minuteNoise {
			if m %= 1440; m >= backupBegins && m < backupEnds {
				return minuteNoise{factor: 1.5 * d()}
			}
			return minuteNoise{factor: d()}
		}
	}},
}

// The nightly backup, in minutes of the day.
const backupBegins, backupEnds = 122, 147

// regression is what happens at minute 0 after the healthy time: by how much everything is slower.
type regression struct {
	name string
	by   func(minute int) float64
}

func step(name string, by float64) regression {
	return regression{name, func(int) float64 { return by }}
}

// regressions begin with none.
var regressions = []regression{
	step("none", 0), step("+20 %", 0.2), step("+30 %", 0.3), step("+60 %", 0.6), step("+100 %", 1),
	{"slow drift", func(m int) float64 { return float64(m) / 360 }}, // doubled after six hours
}

// schema of the native histograms: 8 buckets an octave, as loadgen's.
const schema = 8

// counts is a histogram of one minute: bucket index to transactions.
type counts struct {
	buckets map[int]int
	sum     float64
	n       int
}

// minute draws one minute's transactions around a median of 4 ms.
func minute(r *rand.Rand, n minuteNoise, by float64) counts {
	c := counts{buckets: map[int]int{}}
	// Arrivals are Poisson: the number of them in a minute, near enough normal.
	c.n = max(1, int(rate*60+math.Sqrt(rate*60)*r.NormFloat64()))
	for range c.n {
		v := 0.004 * n.factor * (1 + by) * math.Exp(0.5*r.NormFloat64())
		if n.share > 0 && r.Float64() < n.share {
			v *= n.slow()
		}
		c.buckets[int(math.Ceil(math.Log2(v)*schema))]++
		c.sum += v
	}
	return c
}

// series draws healthy minutes and then regressed ones. Two calls with the same seed have the
// same healthy part.
func series(kind noise, seed uint64, healthy, after int, what regression) []counts {
	r := rand.New(rand.NewPCG(seed, 1))
	next := kind.make(r)
	out := make([]counts, 0, healthy+after)
	for m := range healthy + after {
		by := 0.0
		if m >= healthy {
			by = what.by(m - healthy)
		}
		out = append(out, minute(r, next(m), by))
	}
	return out
}

// pinned is a healthy day of the same kind of noise, as a baseline run has it.
type pinned []counts

func pin(kind noise, seed uint64) pinned {
	return series(kind, seed, 1440, 0, regression{})
}

// hours compares the day's hours as a baseline run does.
func (p pinned) hours(windows []baseline.Window) *baseline.Hours {
	const slice = int(baseline.Slice / time.Minute)
	return baseline.CompareHours(len(p)/slice,
		func(from, to int) float64 { return p[from*slice : to*slice].quantiles(0.25)[0.25] },
		func(i int) bool {
			for m := i * slice; m < (i+1)*slice; m++ {
				for _, w := range windows {
					if w.Contains(time.Unix(int64(m)*60, 0)) {
						return true
					}
				}
			}
			return false
		})
}

// quantiles are from the buckets.
func (p pinned) quantiles(quantiles ...float64) map[float64]float64 {
	all, n := map[int]int{}, 0
	for _, c := range p {
		for i, k := range c.buckets {
			all[i] += k
		}
		n += c.n
	}
	values := map[float64]float64{}
	below := 0.0
	for _, i := range slices.Sorted(maps.Keys(all)) {
		k := float64(all[i])
		for _, q := range quantiles {
			if want := q * float64(n); below < want && below+k >= want {
				// Within a bucket interpolate as histogram_quantile does, on the logarithm.
				values[q] = math.Exp2((float64(i-1) + (want-below)/k) / schema)
			}
		}
		below += k
	}
	return values
}
