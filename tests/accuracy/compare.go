package main

import (
	"fmt"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

// sample is what one round gave, in seconds per operation. A round's truths are of the layers
// that something was held back at; its readings are of all layers.
type sample struct {
	truth, reading map[string]float64
	// duration is the whole statement's, which its phases must add up to; 0 if there is none.
	duration float64
}

// rises is how much more truths and readings were with a disturbance than without, by turn.
type rises struct {
	truth, reading map[string][]float64
	explained      []float64
}

// compare makes turns of one round without a disturbance and one with it: what slows the
// machine down for a while slows both.
func compare(turns int, round func(disturbed bool) sample) rises {
	r := rises{truth: map[string][]float64{}, reading: map[string][]float64{}}
	for range turns {
		without, with := round(false), round(true)
		for layer := range with.truth {
			r.truth[layer] = append(r.truth[layer], with.truth[layer]-without.truth[layer])
		}
		for layer := range with.reading {
			r.reading[layer] = append(r.reading[layer], with.reading[layer]-without.reading[layer])
		}
		for _, s := range []sample{without, with} {
			if s.duration > 0 {
				sum := 0.0
				for _, phase := range phases {
					sum += s.reading[phase]
				}
				r.explained = append(r.explained, 100*sum/s.duration)
			}
		}
	}
	return r
}

// row compares how the reading of a layer rose with the truth. It also writes rises of other layers: what is not
// delayed there must not be measured there.
func (r rises) row(t *rig.Scope, out *rows.File, section, what, layer string, others ...string) {
	truth, reading := r.truth[layer], r.reading[layer]
	var errors []float64
	for i := range truth {
		errors = append(errors, 100*(reading[i]/truth[i]-1))
	}
	cells := []string{
		"layer", layer,
		"held back", ms(rows.Median(truth)),
		"reading rose by", ms(rows.Median(reading)),
		"error", fmt.Sprintf("%+.1f %%", rows.Median(errors)),
		"middle half", rows.Spread(errors, "%+.1f %%"),
	}
	if len(r.explained) > 0 {
		cells = append(cells, "phases of duration", fmt.Sprintf("%.3f %%", rows.Median(r.explained)))
	}
	for _, other := range others {
		cells = append(cells, other+" rose by", ms(rows.Median(r.reading[other])))
	}
	out.Add(section, what, cells...)
	t.Logf("%s: %v", what, cells)
}

func ms(seconds float64) string { return fmt.Sprintf("%.3f ms", 1e3*seconds) }
