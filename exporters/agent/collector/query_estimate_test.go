package collector

import (
	"slices"
	"testing"
)

func TestEstimate(t *testing.T) {
	type look struct {
		sum    uint64
		sample []uint64
		want   []uint64
	}
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"as the sample", []look{{100, []uint64{3, 1}, []uint64{75, 25}}}},
		{"waits for a sample", []look{{100, []uint64{0, 0}, []uint64{0, 0}}, {100, []uint64{1, 1}, []uint64{50, 50}}}},
		{"as before, where the sample stands still", []look{{100, []uint64{3, 1}, []uint64{75, 25}}, {200, []uint64{3, 1}, []uint64{150, 50}}}},
		{"the latest counts most", []look{{0, []uint64{100, 0}, []uint64{0, 0}}, {100, []uint64{100, 950}, []uint64{5, 95}}}},
		{"a sum that falls gives nothing back", []look{{100, []uint64{1, 1}, []uint64{50, 50}}, {60, []uint64{1, 1}, []uint64{50, 50}}, {120, []uint64{1, 1}, []uint64{60, 60}}}},
		{"a sample that falls is none", []look{{100, []uint64{2, 2}, []uint64{50, 50}}, {200, []uint64{1, 2}, []uint64{100, 100}}}},
		{"what does not divide stays for the next", []look{{1, []uint64{1, 1}, []uint64{0, 0}}, {2, []uint64{1, 1}, []uint64{1, 1}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e estimate
			for i, l := range c.looks {
				if got := e.take(l.sum, l.sample); !slices.Equal(got, l.want) {
					t.Errorf("look %d: %d, want %d", i, got, l.want)
				}
			}
		})
	}
}

// Nothing is given twice or lost when two become one.
func TestEstimateAdd(t *testing.T) {
	var a, b, none estimate
	a.take(100, []uint64{1, 0})
	b.take(50, []uint64{0, 0})
	a.add(&b)
	a.add(&none)
	none.add(&a)
	for _, e := range []*estimate{&a, &none} {
		if got := e.take(150, []uint64{1, 0}); !slices.Equal(got, []uint64{150, 0}) {
			t.Errorf("%d, want all in the first part", got)
		}
	}
}
