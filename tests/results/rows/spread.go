package rows

import (
	"fmt"
	"slices"
)

// Median returns the middle of values, interpolated; 0 without values.
func Median(values []float64) float64 { return Quantile(values, 0.5) }

// Quantile returns the q-quantile of values, interpolated; 0 without values.
func Quantile(values []float64, q float64) float64 {
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

// Spread shows the middle half of values and their number, each value by a verb of fmt.
func Spread(values []float64, verb string) string {
	if len(values) == 0 {
		return "-"
	}
	return fmt.Sprintf(verb+" to "+verb+", %d turns", Quantile(values, 0.25), Quantile(values, 0.75), len(values))
}
