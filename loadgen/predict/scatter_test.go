package predict

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// volumesOf is a class of volumes, each a world, and what a workload gets on each.
func volumesOf(t *testing.T, w world, syncs ...float64) (c Class, truths []float64) {
	t.Helper()
	c.Name = "there"
	for i, seconds := range syncs {
		w.sync = exponentially(seconds)
		load, one := w.run(t, "there", uint64(2+i))
		for _, l := range one.Windows {
			l.Volume = fmt.Sprintf("volume %d", i)
			c.Windows = append(c.Windows, l)
		}
		all, _ := totals(load.Windows)
		truths = append(truths, all[0].response.Quantile(0.5))
	}
	return c, truths
}

// The workload would be on one volume of the class: where these differ the interval holds what it would get on each,
// and a note reports it.
func TestVolumesDiffer(t *testing.T) {
	w := world{clients: 2, think: 0.01, own: own{0.0003, 0.0001, 0.1}, sync: exponentially(0.002)}
	load, from := w.run(t, "here", 1)
	for name, c := range map[string]struct {
		syncs  []float64
		differ bool
		note   string
	}{
		"two that differ":       {[]float64{0.002, 0.008}, true, "these differ: the median of commit would be"},
		"one of five that does": {[]float64{0.002, 0.002, 0.002, 0.002, 0.008}, true, "on volume 4"},
		"two alike":             {[]float64{0.004, 0.0042}, false, "measured on two volumes, which are weak evidence of others"},
		"three alike":           {[]float64{0.004, 0.0042, 0.0038}, false, "measured on 3 volumes"},
		"one":                   {[]float64{0.004}, false, "measured on one volume: others of it may differ"},
	} {
		t.Run(name, func(t *testing.T) {
			to, truths := volumesOf(t, w, c.syncs...)
			p := predicted(t, &Input{Workload: load, From: from, To: to})
			if p.Refusal != nil {
				t.Fatal(p.Refusal)
			}
			median := p.Statements[0].Median
			for i, truth := range truths {
				if truth < median.Low || truth > median.High {
					t.Errorf("%s on volume %d, expected %s to %s", ms(truth), i, ms(median.Low), ms(median.High))
				}
			}
			if ratio := median.High / median.Low; !c.differ && ratio > 2 {
				t.Errorf("%s to %s, though volumes are alike", ms(median.Low), ms(median.High))
			}
			if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, c.note) || strings.Contains(notes, "differ:") != c.differ {
				t.Errorf("%s; want %s", notes, c.note)
			}
		})
	}
}

// Of few windows it is known less how these differ: nine of ten intervals hold what as many later ones give, of 3
// windows as of 12.
func TestFewWindows(t *testing.T) {
	for _, n := range []int{3, 5, 12} {
		r := rand.New(rand.NewPCG(1, uint64(n)))
		const trials = 2000
		mean := func(of []float64) float64 {
			sum := 0.0
			for _, v := range of {
				sum += v / float64(len(of))
			}
			return sum
		}
		windows := func() []float64 {
			all := make([]float64, n)
			for i := range all {
				all[i] = 0.2 * r.NormFloat64()
			}
			return all
		}
		held := 0
		for range trials {
			measured := windows()
			again := make([]float64, resamples)
			for i := range again {
				again[i] = mean(drawn(r, measured, n))
			}
			low, high := scatter{again}.interval(math.Exp(mean(measured)), 0, n)
			if later := math.Exp(mean(windows())); low <= later && later <= high {
				held++
			}
		}
		if part := float64(held) / trials; part < 0.87 || part > 0.93 {
			t.Errorf("of %d windows %.1f %% of the intervals hold", n, 100*part)
		}
	}
}

// A volume that gives no number is none that the class was measured on.
func TestVolumesWithoutNumbers(t *testing.T) {
	one, none := []float64{-5, -5.01}, []float64(nil)
	for note, s := range map[string]scatter{
		"on 3 volumes":    {one, one, one},
		"on two volumes":  {one, none, one},
		"on one volume: ": {none, one, none},
	} {
		p := Prediction{Statements: []Predicted{{Kind: "commit"}}}
		p.ofVolumes(Class{Name: "there"}, make([]volume, 3), []map[float64]scatter{{0.5: s}})
		if notes := strings.Join(p.Notes, "; "); !strings.Contains(notes, note) {
			t.Errorf("%s; want %s", notes, note)
		}
	}
}

// Volumes that nobody has measured lie in the interval as often, as soon as three are known; of two, some eight in ten
// do.
func TestFewVolumes(t *testing.T) {
	for n, want := range map[int]float64{2: 0.79, 3: 0.9, 5: 0.9, 20: 0.9} {
		r := rand.New(rand.NewPCG(2, uint64(n)))
		const trials = 2000
		held := 0
		for range trials {
			s, sum := scatter{}, 0.0
			for range n {
				v := 0.1 * r.NormFloat64()
				s = append(s, []float64{v, v, v})
				sum += v / float64(n)
			}
			low, high := s.interval(math.Exp(sum), 0, 12)
			if later := math.Exp(0.1 * r.NormFloat64()); low <= later && later <= high {
				held++
			}
		}
		if part := float64(held) / trials; math.Abs(part-want) > 0.03 {
			t.Errorf("of %d volumes %.1f %% of the intervals hold, want %.0f %%", n, 100*part, 100*want)
		}
	}
}
