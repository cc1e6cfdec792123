package main

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
