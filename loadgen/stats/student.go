package stats

import "math"

const (
	// almostNormal degrees of freedom differ from the normal distribution in the fifth digit.
	almostNormal = 1e5
	mostTerms    = 10000
)

// Student is a quantile of Student's distribution, p at least 0.5. It is exact also far out in the tail,
// where a confidence shared among many pairs lies and expansions around the normal one are too narrow.
func Student(p, freedom float64) float64 {
	if freedom > almostNormal {
		return math.Sqrt2 * math.Erfinv(2*p-1)
	}
	above := func(t float64) float64 { return incompleteBeta(freedom/2, 0.5, freedom/(freedom+t*t)) / 2 }
	low, high := 0.0, 1.0
	for above(high) > 1-p && high < 1e12 {
		low, high = high, 2*high
	}
	for high-low > 1e-9*high {
		if middle := (low + high) / 2; above(middle) > 1-p {
			low = middle
		} else {
			high = middle
		}
	}
	return (low + high) / 2
}

// incompleteBeta is the regularised incomplete beta function, by its continued fraction, which converges
// quickly below the distribution's mean; above it the function's symmetry is used.
func incompleteBeta(a, b, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) {
		return 1 - incompleteBeta(b, a, 1-x)
	}
	lgamma := func(v float64) float64 { l, _ := math.Lgamma(v); return l }
	front := math.Exp(lgamma(a+b)-lgamma(a)-lgamma(b)+a*math.Log(x)+b*math.Log1p(-x)) / a
	// Lentz's method: the fraction is the product of the ratios of numerators c and denominators d.
	const tiny = 1e-300
	fraction, c, d := 1.0, 1.0, 0.0
	step := func(term float64) float64 {
		if d = 1 + term*d; d == 0 {
			d = tiny
		}
		if c = 1 + term/c; c == 0 {
			c = tiny
		}
		d = 1 / d
		fraction *= c * d
		return c * d
	}
	for i := range mostTerms {
		m := float64(i)
		step(-(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)))
		m++
		if math.Abs(step(m*(b-m)*x/((a+2*m-1)*(a+2*m)))-1) < 1e-13 {
			break
		}
	}
	return front / fraction
}
