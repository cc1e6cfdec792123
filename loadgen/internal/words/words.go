// Package words puts figures into words, alike in all reports.
package words

import "fmt"

// twice is from where on a ratio is worded as a multiple.
const twice = 2

// Change words a ratio of times.
func Change(ratio float64) string {
	switch {
	case ratio >= twice:
		return fmt.Sprintf("%.1f times as long", ratio)
	case ratio >= 1:
		return Percent(ratio-1) + " longer"
	}
	return Percent(1-ratio) + " shorter"
}

// Percent prints a share, small ones with a digit more.
func Percent(share float64) string {
	if p := share * 100; p < 9.95 {
		return fmt.Sprintf("%.1f %%", p)
	}
	return fmt.Sprintf("%.0f %%", share*100)
}

// Beside is what comes between Change and that which the ratio is to.
func Beside(ratio float64) string {
	if ratio >= twice {
		return "as"
	}
	return "than"
}
