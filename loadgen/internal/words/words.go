// Package words puts figures into words, alike in all reports.
package words

import (
	"fmt"
	"math"
	"slices"
)

// twice is from where on a ratio is worded as a multiple.
const twice = 2

// Change words a ratio of times, with as many digits as distinguish it from limits.
func Change(ratio float64, limits ...float64) string {
	var shares []float64
	for _, l := range limits {
		shares = append(shares, math.Abs(l-1))
	}
	switch {
	case ratio >= twice:
		return Apart(ratio, 1, limits...) + " times as long"
	case ratio >= 1:
		return Percent(ratio-1, shares...) + " longer"
	}
	return Percent(1-ratio, shares...) + " shorter"
}

// Percent prints a share, small ones with a digit more, with as many digits as distinguish it from limits.
func Percent(share float64, limits ...float64) string {
	percent, decimals := share*100, 0
	if percent < 9.95 {
		decimals = 1
	}
	limits = slices.Clone(limits)
	for i := range limits {
		limits[i] *= 100
	}
	return Apart(percent, decimals, limits...) + " %"
}

// Apart prints a value with some decimals, or as many more as distinguish it from each limit that it is not.
func Apart(value float64, decimals int, limits ...float64) string {
	const most = 6
	for ; ; decimals++ {
		text := fmt.Sprintf("%.*f", decimals, value)
		if decimals >= most || !slices.ContainsFunc(limits, func(l float64) bool {
			return fmt.Sprintf("%.*f", decimals, l) == text && fmt.Sprintf("%.*f", most, l) != fmt.Sprintf("%.*f", most, value)
		}) {
			return text
		}
	}
}

// Beside is what comes between Change and that which the ratio is to.
func Beside(ratio float64) string {
	if ratio >= twice {
		return "as"
	}
	return "than"
}
