package collector

import (
	"slices"
	"testing"
)

func TestEstimate(t *testing.T) {
	type look struct {
		sum          uint64
		sample, want []uint64
		otherwise    []uint64
	}
	for _, c := range []struct {
		name  string
		looks []look
	}{
		{"as the sample", []look{{100, []uint64{3, 1}, []uint64{75, 25}, nil}}},
		{"waits for a sample", []look{{100, []uint64{0, 0}, []uint64{0, 0}, nil}, {100, []uint64{1, 1}, []uint64{50, 50}, nil}}},
		{"as before, where the sample stands still", []look{{100, []uint64{3, 1}, []uint64{75, 25}, nil}, {200, []uint64{3, 1}, []uint64{150, 50}, nil}}},
		{"the latest counts most", []look{{0, []uint64{100, 0}, []uint64{0, 0}, nil}, {100, []uint64{100, 950}, []uint64{5, 95}, nil}}},
		{"a sum that falls gives nothing back", []look{{100, []uint64{1, 1}, []uint64{50, 50}, nil}, {60, []uint64{1, 1}, []uint64{50, 50}, nil}, {120, []uint64{1, 1}, []uint64{60, 60}, nil}}},
		{"a sample that falls is none", []look{{100, []uint64{2, 2}, []uint64{50, 50}, nil}, {200, []uint64{1, 2}, []uint64{100, 100}, nil}}},
		{"without a sample otherwise, which is forgotten with the first one", []look{
			{sum: 100, sample: []uint64{0, 0}, otherwise: []uint64{9, 1}, want: []uint64{90, 10}},
			{sum: 200, sample: []uint64{1, 1}, otherwise: []uint64{9, 1}, want: []uint64{140, 60}},
		}},
		{"what does not divide stays for the next", []look{{1, []uint64{1, 1}, []uint64{0, 0}, nil}, {2, []uint64{1, 1}, []uint64{1, 1}, nil}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var e estimate
			for i, l := range c.looks {
				if got := e.take(l.sum, l.sample, l.otherwise); !slices.Equal(got, l.want) {
					t.Errorf("look %d: %d, want %d", i, got, l.want)
				}
			}
		})
	}
}

// Nothing is given twice or lost when two become one.
func TestEstimateAdd(t *testing.T) {
	var a, b, none estimate
	a.take(100, []uint64{1, 0}, nil)
	b.take(50, []uint64{0, 0}, nil)
	a.add(&b)
	a.add(&none)
	none.add(&a)
	for _, e := range []*estimate{&a, &none} {
		if got := e.take(150, []uint64{1, 0}, nil); !slices.Equal(got, []uint64{150, 0}) {
			t.Errorf("%d, want all in the first part", got)
		}
	}
}
