package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Difference is how two sets of positive values differ in level: the ratio of their geometric means,
// second to first, with the interval that holds the true one with the requested confidence.
type Difference struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Least is the least difference, as a share, that would have been found four times out of five.
	Least float64 `json:"least"`
}

// LeastBeyond is Least where a ratio must also be beyond 1 and a share to count: a difference of just that share is
// beyond it in every other comparison only.
func (d Difference) LeastBeyond(share float64) float64 {
	shift := math.Log(d.Ratio)
	width := math.Log(d.High) - shift
	chance := math.Log(1+d.Least) - width // what the power takes on top of the interval's half width
	return math.Exp(max(width, math.Log(1+share))+chance) - 1
}

// Superiority is the share of pairs, one value of each set, of which b's is the larger (ties count half):
// the effect's size beside the noise, whatever the distributions (Vargha and Delaney's A). 0.5 is no effect.
func Superiority(a, b []float64) float64 {
	a = slices.Sorted(slices.Values(a))
	pairs := 0.0
	for _, v := range b {
		below, _ := slices.BinarySearch(a, v)
		upTo, _ := slices.BinarySearch(a, math.Nextafter(v, math.Inf(1)))
		pairs += float64(below+upTo) / 2
	}
	return pairs / (float64(len(a)) * float64(len(b)))
}

// Level is a set's geometric mean, and how many values it has; values that are not above 0 are none.
func Level(values []float64) (level float64, count int) {
	x := logs(values)
	if len(x) == 0 {
		return 0, 0
	}
	return math.Exp(average(x)), len(x)
}

const (
	// LeastRepeats is how many values of either set a difference needs: of three, the spread is a guess.
	LeastRepeats = 4
	resamples    = 500
	// power is the share of true differences of size Least that are found.
	power = 0.8
)

// Independent compares values that have nothing to do with each other, such as repeated runs:
// Welch's interval on logarithms. alpha is the chance of an interval that leaves the truth out.
// It is false if there are too few values.
func Independent(a, b []float64, alpha float64) (Difference, bool) {
	x, y := logs(a), logs(b)
	if len(x) < LeastRepeats || len(y) < LeastRepeats {
		return Difference{}, false
	}
	mx, vx := moments(x)
	my, vy := moments(y)
	nx, ny := float64(len(x)), float64(len(y))
	sx, sy := vx/nx, vy/ny
	freedom := nx + ny - 2
	if d := sx*sx/(nx-1) + sy*sy/(ny-1); d > 0 {
		freedom = (sx + sy) * (sx + sy) / d
	}
	return difference(my-mx, math.Sqrt(sx+sy), freedom, alpha), true
}

// Paired compares values that were made side by side, such as two classes' runs of one round: what
// moved both is in neither.
func Paired(a, b []float64, alpha float64) (Difference, bool) {
	var d []float64
	for i := range min(len(a), len(b)) {
		if a[i] > 0 && b[i] > 0 {
			d = append(d, math.Log(b[i]/a[i]))
		}
	}
	if len(d) < LeastRepeats {
		return Difference{}, false
	}
	m, v := moments(d)
	n := float64(len(d))
	return difference(m, math.Sqrt(v/n), n-1, alpha), true
}

// Series compares two time series whose values depend on those before: a circular block bootstrap
// gives each mean's error, with blocks of several times the series' own correlation time.
func Series(a, b []float64, alpha float64) (Difference, bool) {
	x, y := logs(a), logs(b)
	ex, fx, okx := blockError(x)
	ey, fy, oky := blockError(y)
	if !okx || !oky {
		return Difference{}, false
	}
	mx, _ := moments(x)
	my, _ := moments(y)
	freedom := fx + fy
	if d := math.Pow(ex, 4)/fx + math.Pow(ey, 4)/fy; d > 0 {
		freedom = math.Pow(ex*ex+ey*ey, 2) / d
	}
	return difference(my-mx, math.Hypot(ex, ey), freedom, alpha), true
}

func difference(shift, err, freedom, alpha float64) Difference {
	width := Student(1-alpha/2, freedom) * err
	least := (Student(1-alpha/2, freedom) + Student(power, freedom)) * err
	return Difference{math.Exp(shift), math.Exp(shift - width), math.Exp(shift + width), math.Exp(least) - 1}
}

// blockError is the standard error of a series' mean and its degrees of freedom; false if the
// series is shorter than a few of its own correlation times.
func blockError(x []float64) (err, freedom float64, ok bool) {
	const leastBlocks = 6
	n := len(x)
	tau := correlationTime(x)
	if float64(n) < leastBlocks*2*tau || n < leastBlocks {
		return 0, 0, false
	}
	block := max(min(int(math.Ceil(8*tau)), n/leastBlocks), 1)
	// before[i] is the sum of the first i values of the series put behind itself.
	before := make([]float64, 2*n+1)
	for i := range 2 * n {
		before[i+1] = before[i] + x[i%n]
	}
	random := rand.New(rand.NewPCG(uint64(n), 2))
	means := make([]float64, resamples)
	for i := range means {
		sum := 0.0
		for drawn := 0; drawn < n; drawn += block {
			at, length := random.IntN(n), min(block, n-drawn)
			sum += before[at+length] - before[at]
		}
		means[i] = sum / float64(n)
	}
	_, v := moments(means)
	blocks := float64(n) / float64(block)
	// Blocks vary about their own mean, which takes one of them, and miss what correlates across their ends.
	missed := min(tau/float64(block), 0.5)
	return math.Sqrt(v * blocks / (blocks - 1) / (1 - missed)), blocks - 1, true
}

// correlationTime is the integrated autocorrelation time in values, 1 for independent ones: the sum
// of autocorrelations as long as neighbours' sums are positive.
func correlationTime(x []float64) float64 {
	m, v := moments(x)
	if v == 0 || len(x) < 4 {
		return 1
	}
	at := func(lag int) float64 {
		s := 0.0
		for i := range len(x) - lag {
			s += (x[i] - m) * (x[i+lag] - m)
		}
		return s / float64(len(x)) / v
	}
	tau := 1.0
	for lag := 1; lag+1 < len(x)/2; lag += 2 {
		pair := at(lag) + at(lag+1)
		if pair <= 0 {
			break
		}
		tau += pair
	}
	return tau
}

func logs(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 1) {
			out = append(out, math.Log(v))
		}
	}
	return out
}

func moments(x []float64) (mean, variance float64) {
	mean = average(x)
	for _, v := range x {
		variance += (v - mean) * (v - mean)
	}
	return mean, variance / max(float64(len(x)-1), 1)
}
