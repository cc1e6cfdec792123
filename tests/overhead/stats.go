package main

import "slices"

// ratiosOf pairs the runs of a mode with those of the reference, round by round: what slows
// the machine down for a while slows both.
func ratiosOf(values, reference []float64) []float64 {
	if len(reference) != len(values) {
		return nil
	}
	var ratios []float64
	for i := range values {
		if reference[i] > 0 {
			ratios = append(ratios, values[i]/reference[i])
		}
	}
	return ratios
}

// quantile returns the q-quantile of values, interpolated; 0 without values.
func quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
