package stats

import (
	"math"
	"math/rand/v2"
	"testing"
)

// wander is a series whose noise of 10 % is correlated over about ten values, as response times are
// from interval to interval.
func wander(random *rand.Rand, n int, keep, level float64) []float64 {
	x := make([]float64, n)
	state := random.NormFloat64()
	for i := range x {
		state = keep*state + math.Sqrt(1-keep*keep)*random.NormFloat64()
		x[i] = level * math.Exp(0.1*state)
	}
	return x
}

// TestCoverage: equal sets differ in no more than about one of twenty comparisons, and a difference of the reported
// size is seen in most.
func TestCoverage(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const trials = 300
	for _, c := range []struct {
		name    string
		make    func(level float64) []float64
		compare func(a, b []float64, alpha float64) (Difference, bool)
		most    int // of false ones
	}{
		{"five runs each", func(l float64) []float64 { return noise(random, 5, l) }, Independent, 24},
		{"thirty runs", func(l float64) []float64 { return noise(random, 30, l) }, Independent, 24},
		{"pairs", func(l float64) []float64 { return noise(random, 6, l) }, Paired, 24},
		{"two hours", func(l float64) []float64 { return wander(random, 720, 0.9, l) }, Series, 33},
		{"two hours, slower", func(l float64) []float64 { return wander(random, 720, 0.95, l) }, Series, 33},
		{"half a day", func(l float64) []float64 { return wander(random, 4320, 0.9, l) }, Series, 30},
	} {
		wrong, found, least := 0, 0, 0.0
		for range trials {
			d, ok := c.compare(c.make(1), c.make(1), 0.05)
			if !ok {
				t.Fatalf("%s: not compared", c.name)
			}
			if d.Low > 1 || d.High < 1 {
				wrong++
			}
			least += d.Least / trials
		}
		for range trials {
			if d, _ := c.compare(c.make(1), c.make(1+least), 0.05); d.Low > 1 {
				found++
			}
		}
		if wrong > c.most {
			t.Errorf("%s: %d of %d equal pairs are called different", c.name, wrong, trials)
		}
		if found < trials*6/10 {
			t.Errorf("%s: a difference of %.1f %% is found in %d of %d", c.name, least*100, found, trials)
		}
		t.Logf("%s: %d false of %d, %.1f %% found in %d", c.name, wrong, trials, least*100, found)
	}
	if _, ok := Independent([]float64{1, 2, 3}, []float64{1, 2, 3, 4}, 0.05); ok {
		t.Error("three runs were compared")
	}
	var ramp []float64
	for i := range 30 {
		ramp = append(ramp, float64(i+1))
	}
	if _, ok := Series(ramp, ramp, 0.05); ok {
		t.Error("a series that only rises was compared: it is no longer than its own correlation")
	}
}

// TestStudent: the values of the printed tables, also far out, where the confidence of a table of many
// pairs lies.
func TestStudent(t *testing.T) {
	for _, c := range []struct{ p, freedom, want float64 }{
		{0.975, 1, 12.706}, {0.975, 3, 3.182}, {0.975, 4, 2.776}, {0.975, 10, 2.228}, {0.975, 1e4, 1.9602}, {0.975, 1e6, 1.9600},
		{0.8, 5, 0.920}, {0.9995, 3, 12.924}, {0.9995, 5, 6.869}, {0.9995, 10, 4.587}, {0.9995, 30, 3.646}, {0.5, 7, 0},
	} {
		if got := Student(c.p, c.freedom); math.Abs(got-c.want) > 0.0005*max(c.want, 1) {
			t.Errorf("%v at %v degrees of freedom: %v, want %v", c.p, c.freedom, got, c.want)
		}
	}
}

func TestSuperiority(t *testing.T) {
	for _, c := range []struct {
		a, b []float64
		want float64
	}{
		{[]float64{1, 2, 3}, []float64{4, 5}, 1}, {[]float64{4, 5}, []float64{1, 2, 3}, 0},
		{[]float64{1, 2}, []float64{2, 1}, 0.5}, {[]float64{3, 1}, []float64{2, 3}, 0.625}, {[]float64{7, 7}, []float64{7}, 0.5},
	} {
		if got := Superiority(c.a, c.b); got != c.want {
			t.Errorf("of %v over %v: %v, want %v", c.b, c.a, got, c.want)
		}
	}
}

// TestLeastBeyond: below the interval's own width a threshold takes nothing; above, a difference must be
// larger than the threshold by what the noise may take away.
func TestLeastBeyond(t *testing.T) {
	d, _ := Independent([]float64{1, 1.1, 0.9, 1.05, 0.95}, []float64{1, 1.1, 0.9, 1.05, 0.95}, 0.05)
	if got := d.LeastBeyond(0.01); math.Abs(got-d.Least) > 1e-9 {
		t.Errorf("with a threshold of 1 %%: %v, want %v as without", got, d.Least)
	}
	if got := d.LeastBeyond(0.5); got < 0.55 || got > 0.7 {
		t.Errorf("with a threshold of 50 %%: %v", got)
	}
}
