package predict

import (
	"fmt"
	"math"
	"slices"
)

const (
	// rarest is the least part of all statements that wait for storage that a kind must be to be simulated: of turns
	// that are 20.
	rarest = 0.0025
	// mostRare is how many of these may be of kinds that are left out, all together.
	mostRare = 0.05
	// leastSpread is how many of the resamples must give a quantile to know its uncertainty.
	leastSpread = resamples / 4
)

// leaveOut takes the kinds out of the flow of which a simulation meets none or few: there is no quantile of these, and
// what they add to the load is little.
func (f *fitted) leaveOut() *Refusal {
	isRare := func(t total) bool { return t.count < rarest*f.counted }
	left := 0.0
	for _, t := range f.totals {
		if isRare(t) {
			f.rare = append(f.rare, t)
			left += t.count
		}
	}
	if left > mostRare*f.counted {
		return &Refusal{Rare, fmt.Sprintf("%.0f %% of the statements that wait for storage are of kinds each of which is less than one in %.0f of them (%s and others): the simulation is of few kinds", 100*left/f.counted, 1/rarest, f.rare[0].kind),
			"measure while the workload does less of all sorts"}
	}
	f.totals = slices.DeleteFunc(f.totals, isRare)
	f.counted -= left
	return nil
}

// tooRare is the refusal of a kind that was left out.
func (f *fitted) tooRare(t total) *Refusal {
	return &Refusal{Rare, fmt.Sprintf("%s is one in %.0f of the statements that wait for storage: the simulation meets too few", t.kind, math.Round((f.counted+t.count)/t.count)),
		"measure in windows in which there are more of it"}
}

// noNumber is the refusal of a kind for which a simulation gives no number.
func noNumber(kind string) *Refusal {
	return &Refusal{Unexplained, "the simulation gives no number for " + kind, "measure longer, or in windows in which there are more of it"}
}

// finite is whether a number is one.
func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// usable is whether a value's numbers are some.
func (v Value) usable() bool {
	return finite(v.Now) && finite(v.Expected) && finite(v.Low) && finite(v.High) && v.Low > 0
}
