package main

import (
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/tests/results/rows"
)

// move is a load from one store to another: what was predicted and what was measured, in seconds.
type move struct {
	kind, from, to string
	// plain means that one of the stores is the folder, whose disk is not delayed.
	plain                       bool
	refusal                     *predict.Refusal
	predicted                   predict.Predicted
	measuredMedian, measuredP99 float64
}

// table is all moves.
type table struct {
	moves []move
	// queued are the shortest and the longest mean wait for a CPU of a statement in any window, by load.
	queued map[string][2]float64
}

// predictAll predicts every move that was measured.
func predictAll(m *measured) (*table, error) {
	t := &table{queued: map[string][2]float64{}}
	for _, k := range kinds {
		least, most := math.Inf(1), 0.0
		for _, w := range m.Workloads[k.name] {
			for _, window := range w.Windows {
				s := window.Statements[0]
				mean := s.Phases["runqueue"] / s.Response.Count()
				least, most = min(least, mean), max(most, mean)
			}
		}
		t.queued[k.name] = [2]float64{least, most}
		for _, from := range stores {
			for _, to := range stores {
				w, ok := m.Workloads[k.name][from.name]
				there, ok2 := m.Workloads[k.name][to.name]
				if from.name == to.name || !ok || !ok2 {
					continue
				}
				// What the page cache of a folder answers no other store's does.
				w.SameCache = k.reads && !from.folder && !to.folder
				p, err := predict.Predict(&predict.Input{Version: predict.Version, Workload: w, From: m.Classes[from.name], To: m.Classes[to.name]})
				if err != nil {
					return nil, fmt.Errorf("%s, %s to %s: %w", k.name, from.name, to.name, err)
				}
				var truth predict.Histogram
				for _, window := range there.Windows {
					truth = truth.Add(window.Statements[0].Response)
				}
				one := move{kind: k.name, from: from.name, to: to.name, plain: from.folder || to.folder, refusal: p.Refusal,
					measuredMedian: truth.Quantile(0.5), measuredP99: truth.Quantile(0.99)}
				if p.Refusal == nil {
					one.predicted = p.Statements[0]
				}
				t.moves = append(t.moves, one)
			}
		}
	}
	return t, nil
}

func off(v *predict.Value, truth float64) float64 { return 100 * (v.Expected/truth - 1) }

func holds(v *predict.Value, truth float64) bool { return v.Low <= truth && truth <= v.High }

// score is how many of the predicted moves of some kind are right.
type score struct{ moves, refused, median, medianHeld, p99, p99Held int }

func (t *table) score(of func(move) bool) (s score) {
	add := func(n *int, yes bool) {
		if yes {
			*n++
		}
	}
	for _, m := range t.moves {
		if !of(m) {
			continue
		}
		if m.refusal != nil {
			s.refused++
			continue
		}
		s.moves++
		add(&s.median, math.Abs(off(m.predicted.Median, m.measuredMedian)) <= 10)
		add(&s.medianHeld, holds(m.predicted.Median, m.measuredMedian))
		add(&s.p99, math.Abs(off(m.predicted.P99, m.measuredP99)) <= 25)
		add(&s.p99Held, holds(m.predicted.P99, m.measuredP99))
	}
	return s
}

func (s score) cells() []string {
	of := func(n int) string { return fmt.Sprintf("%d of %d", n, s.moves) }
	return []string{"moves predicted", fmt.Sprint(s.moves), "refused", fmt.Sprint(s.refused), "median within 10 %", of(s.median), "median's interval held", of(s.medianHeld),
		"p99 within 25 %", of(s.p99), "p99's interval held", of(s.p99Held)}
}

// noise is how long statements of some loads waited for a CPU.
func (t *table) noise(of func(move) bool) string {
	least, most := math.Inf(1), 0.0
	for _, m := range t.moves {
		if q, ok := t.queued[m.kind]; ok && of(m) {
			least, most = min(least, q[0]), max(most, q[1])
		}
	}
	if most == 0 {
		return "" // all were refused
	}
	return fmt.Sprintf("%.2f to %.2f ms", 1e3*least, 1e3*most)
}

// group is a score that is reported.
type group struct {
	name, noise string
	score
}

func (g group) cells() []string {
	return append(g.score.cells(), "waiting for a CPU, a statement", g.noise)
}

// groups returns the scores that are reported.
func (t *table) groups() (all []group) {
	add := func(name string, of func(move) bool) {
		if s := t.score(of); s.moves+s.refused > 0 {
			all = append(all, group{name, t.noise(of), s})
		}
	}
	add("all moves", func(move) bool { return true })
	add("between stores that hold back", func(m move) bool { return !m.plain })
	add("from or to a folder on the machine's disk", func(m move) bool { return m.plain })
	var kinds []string
	for _, one := range t.moves {
		if !slices.Contains(kinds, one.kind) {
			kinds = append(kinds, one.kind)
			add(one.kind, func(m move) bool { return m.kind == one.kind })
		}
	}
	return all
}

func ms(seconds float64) string { return fmt.Sprintf("%.2f ms", 1e3*seconds) }

func (m move) cells() []string {
	if m.refusal != nil {
		return []string{"refused", m.refusal.Text}
	}
	interval := func(v *predict.Value) string {
		return fmt.Sprintf("%s (%.2f to %.2f)", ms(v.Expected), 1e3*v.Low, 1e3*v.High)
	}
	median, p99 := m.predicted.Median, m.predicted.P99
	return []string{"median before", ms(median.Now), "predicted", interval(median), "measured", ms(m.measuredMedian), "error", fmt.Sprintf("%+.0f %%", off(median, m.measuredMedian)),
		"p99 before", ms(p99.Now), "p99 predicted", interval(p99), "p99 measured", ms(m.measuredP99), "p99 error", fmt.Sprintf("%+.0f %%", off(p99, m.measuredP99))}
}

func (m move) name() string { return fmt.Sprintf("%s: %s → %s", m.kind, m.from, m.to) }

func (t *table) print(w io.Writer) {
	for _, m := range t.moves {
		fmt.Fprintln(w, m.name(), m.cells())
	}
	for _, g := range t.groups() {
		fmt.Fprintln(w, g.name, g.cells())
	}
}

// rows writes the scores and each move, in these sections.
func (t *table) rows(out *rows.File, section, moves string) {
	for _, g := range t.groups() {
		out.Add(section, g.name, g.cells()...)
	}
	for _, m := range t.moves {
		out.Add(moves, m.name(), m.cells()...)
	}
}
