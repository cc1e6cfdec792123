package predict

import (
	"maps"
	"slices"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// total is what all windows have of one kind of statement.
type total struct {
	kind     string
	response Histogram
	count    float64
	phases   map[string]float64
}

// mean is a phase's seconds of a statement.
func (t total) mean(phases ...string) float64 {
	sum := 0.0
	for _, p := range phases {
		sum += t.phases[p]
	}
	return sum / t.count
}

// totals adds up windows, by kinds in their order by name.
func totals(windows []Window) (all []total, seconds float64) {
	by := map[string]*total{}
	for _, w := range windows {
		seconds += w.Seconds
		for _, s := range w.Statements {
			t := by[s.Kind]
			if t == nil {
				t = &total{kind: label.Value(s.Kind), phases: map[string]float64{}}
				by[s.Kind] = t
			}
			t.response = t.response.Add(s.Response)
			for phase, v := range s.Phases {
				t.phases[phase] += v
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(by)) {
		t := by[name]
		if t.count = t.response.Count(); t.count > 0 {
			all = append(all, *t)
		}
	}
	return all, seconds
}

// operations adds up a class's windows.
func operations(windows []Load) (all map[string]Operation, seconds float64) {
	all = map[string]Operation{}
	weighed := map[string]float64{}
	for _, w := range windows {
		seconds += w.Seconds
		for name, o := range w.Operations {
			sum := all[name]
			sum.Times = sum.Times.Add(o.Times)
			if n := o.Times.Count(); o.Bytes > 0 {
				weighed[name] += n
				sum.Bytes += (o.Bytes - sum.Bytes) * n / weighed[name]
			}
			all[name] = sum
		}
	}
	maps.DeleteFunc(all, func(_ string, o Operation) bool { return !(o.Times.Count() > 0) })
	return all, seconds
}

// rate is how many operations of a kind there were in a second of a window.
func (l Load) rate(name string) float64 { return l.Operations[name].Times.Count() / l.Seconds }
