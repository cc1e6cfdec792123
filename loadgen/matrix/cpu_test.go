package matrix

import "testing"

// A share of a time stays one, whatever the kernel's sums do.
func TestIdleSince(t *testing.T) {
	for what, c := range map[string]struct {
		before, after procStat
		want          float64
	}{
		"half":                              {procStat{10, 20}, procStat{15, 30}, 0.5},
		"no time":                           {procStat{10, 20}, procStat{10, 20}, 1},
		"all, and a rounding more":          {procStat{100.01, 200.02}, procStat{100.02, 200.0299999999}, 1},
		"waits for I/O that are taken back": {procStat{10, 20}, procStat{9.99, 20.01}, 0},
	} {
		if got := c.after.idleSince(c.before); got != c.want {
			t.Errorf("%s: %v, want %v", what, got, c.want)
		}
	}
}
