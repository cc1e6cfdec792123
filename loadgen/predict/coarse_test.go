package predict

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// bucketed is a histogram of other bounds, each so many times the one before.
func bucketed(h Histogram, ratio float64) Histogram {
	var out Histogram
	for b := 1e-5; b < 100; b *= ratio {
		out.Bounds = append(out.Bounds, b)
	}
	out.Counts = make([]float64, len(out.Bounds)+1)
	for i, c := range h.Counts {
		low, high := h.bucket(i)
		at, _ := slices.BinarySearch(out.Bounds, within(low, high, 0.5))
		out.Counts[at] += c
	}
	return out
}

// requests makes a class's calls requests of a device, in buckets so far apart.
func requests(c Class, ratio float64) {
	renamed(c, "sync", "write")
	each(c, func(_ string, o *Operation, _ *Load) { o.Times = bucketed(o.Times, ratio) })
}

// Where in its bucket a time is cannot be known: the interval has that of the operations of both classes, and holds
// what is made wherever they are.
func TestCoarseOperations(t *testing.T) {
	const ratio = math.Sqrt2
	at := func(bucket, share float64) float64 { return 1e-5 * math.Pow(ratio, bucket+share) }
	w := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}}
	for _, share := range [][2]float64{{0.2, 0.8}, {0.8, 0.2}, {0.5, 0.5}} {
		w.sync = constantly(at(14, share[0]))
		load, from := w.run(t, "here", 1)
		w.sync = constantly(at(18, share[1]))
		truth, to := w.run(t, "there", 2)
		requests(from, ratio)
		requests(to, ratio)
		p := predicted(t, &Input{Workload: load, From: from, To: to})
		if p.Refusal != nil {
			t.Fatal(p.Refusal)
		}
		all, _ := totals(truth.Windows)
		v, want := p.Statements[0].Median, all[0].response.Quantile(0.5)
		if want < v.Low || want > v.High {
			t.Errorf("%v of the buckets: %s expected (%s to %s), %s made", share, ms(v.Expected), ms(v.Low), ms(v.High), ms(want))
		}
		if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, "requests of block devices") || !strings.Contains(notes, "loadgen probe") {
			t.Error(notes)
		}
	}
}

// A statement's median is somewhere in its bucket: the interval is as wide at least, of a fine histogram it is not.
func TestCoarseResponses(t *testing.T) {
	for _, c := range []struct{ ratio, least, most float64 }{{2, 1.9, 4}, {1.09, 1, 1.6}} {
		w := world{clients: 1, think: 0.005, own: own{0.0003, 0.0001, 0.1}, sync: constantly(0.002)}
		load, from := w.run(t, "here", 1)
		w.sync = constantly(0.004)
		_, to := w.run(t, "there", 2)
		for i := range load.Windows {
			s := &load.Windows[i].Statements[0]
			s.Response = bucketed(s.Response, c.ratio)
		}
		p := predicted(t, &Input{Workload: load, From: from, To: to})
		if p.Refusal != nil {
			t.Fatal(p.Refusal)
		}
		if have := p.Statements[0].Median.High / p.Statements[0].Median.Low; have < c.least || have > c.most {
			t.Errorf("buckets %v apart: the interval's ends are %v apart, want %v to %v", c.ratio, have, c.least, c.most)
		}
		if notes := strings.Join(p.Notes, "; "); strings.Contains(notes, "block devices") {
			t.Error(notes)
		}
	}
}

// What a bucket leaves unknown is by its bounds: also of the first, which begins at 0, and nothing of the last bound.
func TestUnsure(t *testing.T) {
	h := Histogram{[]float64{1, 2, 4}, []float64{1, 8, 1, 0}}
	if have, want := h.unsure(0.5), math.Ln2/math.Sqrt(12); math.Abs(have-want) > 1e-12 {
		t.Errorf("%v, want %v", have, want)
	}
	if have, want := h.unsure(0.05), 1/math.Sqrt(3); math.Abs(have-want) > 1e-12 {
		t.Errorf("of the first bucket %v, want %v", have, want)
	}
	if have, want := h.unsureMean(), math.Ln2/math.Sqrt(12); math.Abs(have-want) > 1e-12 {
		t.Errorf("of the mean %v, want %v", have, want)
	}
	if have := (Histogram{}).unsureMean(); have != 0 {
		t.Errorf("of nothing %v", have)
	}
}
