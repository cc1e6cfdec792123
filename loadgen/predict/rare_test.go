package predict

import (
	"fmt"
	"math"
	"strings"
	"testing"
)

// busy is a workload of 27 million commits on a class, and what was measured of another class.
func busy(t *testing.T, clients int) *Input {
	t.Helper()
	w := world{clients: clients, think: 0.002, own: own{0.0003, 0.0002, 0.2}, sync: exponentially(0.002)}
	load, from := w.run(t, "here", 1)
	w.sync = exponentially(0.005)
	_, to := w.run(t, "there", 2)
	const times = 3000
	many := func(h Histogram) {
		for i := range h.Counts {
			h.Counts[i] *= times
		}
	}
	for i := range load.Windows {
		win := &load.Windows[i]
		win.Seconds *= times
		for _, s := range win.Statements {
			many(s.Response)
			for phase := range s.Phases {
				s.Phases[phase] *= times
			}
		}
	}
	for _, c := range []Class{from, to} {
		for i := range c.Windows {
			c.Windows[i].Seconds *= times
			for _, o := range c.Windows[i].Operations {
				many(o.Times)
			}
		}
	}
	return &Input{Version: Version, Workload: load, From: from, To: to}
}

// of is a kind of statement of which a window has so many, as slow as its commits, though they wait for no other's
// flush.
func of(kind string, win Window, n float64) Statement {
	commit := win.Statements[0]
	s := Statement{kind, Histogram{commit.Response.Bounds, nil}, map[string]float64{}}
	share := n / commit.Response.Count()
	for _, c := range commit.Response.Counts {
		s.Response.Counts = append(s.Response.Counts, c*share)
	}
	for phase, seconds := range commit.Phases {
		if phase == "wait" {
			phase = "sync"
		}
		s.Phases[phase] += seconds * share
	}
	return s
}

// allFinite fails for a number that is none, in the text and in what is written for a program.
func allFinite(t *testing.T, p *Prediction) {
	t.Helper()
	var b strings.Builder
	if err := p.WriteJSON(&b); err != nil {
		t.Error(err)
	}
	if printed := text(t, p) + b.String(); strings.Contains(printed, "NaN") || strings.Contains(printed, "Inf") {
		t.Error(printed)
	}
	for _, s := range p.Statements {
		if (s.Refusal == nil) != (s.Median != nil && s.P99 != nil) {
			t.Errorf("%s has neither numbers nor a reason: %+v", s.Kind, s)
		}
		if s.Refusal != nil {
			continue
		}
		for _, v := range []*Value{s.Median, s.P99} {
			if !(v.Now > 0) || !(v.Low > 0) || !(v.Expected > v.Low) || !(v.High > v.Expected) || math.IsInf(v.High, 0) {
				t.Errorf("%s: %+v", s.Kind, *v)
			}
		}
	}
}

// A kind that is too rare for the simulation to meet is reported as such, and the others have the numbers that they
// have without it.
func TestRareKind(t *testing.T) {
	for name, c := range map[string]struct {
		clients int
		where   func(window int) float64
	}{
		"in every window":             {1, func(int) float64 { return 40 }},
		"in one window":               {1, func(i int) float64 { return map[int]float64{2: 240}[i] }},
		"in every one, many sessions": {4, func(int) float64 { return 40 }},
		"in one, many sessions":       {4, func(i int) float64 { return map[int]float64{2: 240}[i] }},
	} {
		t.Run(name, func(t *testing.T) {
			alone := predicted(t, busy(t, c.clients))
			if alone.Refusal != nil || len(alone.Statements) != 1 {
				t.Fatalf("%+v", alone)
			}
			in := busy(t, c.clients)
			for i := range in.Workload.Windows {
				win := &in.Workload.Windows[i]
				win.Statements = append(win.Statements, of("rollback", *win, c.where(i)))
			}
			p := predicted(t, in)
			allFinite(t, p)
			if p.Refusal != nil || len(p.Statements) != 2 {
				t.Fatalf("%+v", p)
			}
			commit, rare := p.Statements[0], p.Statements[1]
			if commit.Refusal != nil || math.Abs(commit.Median.Expected/alone.Statements[0].Median.Expected-1) > 0.05 {
				t.Errorf("commits %+v, without the others %+v", commit, alone.Statements[0])
			}
			if r := rare.Refusal; rare.Kind != "rollback" || r == nil || r.Reason != Rare || !strings.Contains(r.Text, "rollback") || r.Next == "" {
				t.Errorf("%+v, want that it is too rare", rare)
			}
		})
	}
}

// The only kind that flushes may be the rare one.
func TestRareFlushes(t *testing.T) {
	for _, n := range []float64{40, 600, 40_000} {
		in := busy(t, 4)
		in.Workload.SameCache = true
		for _, c := range []Class{in.From, in.To} {
			for _, w := range c.Windows {
				w.Operations["read"] = w.Operations["sync"]
			}
		}
		for i := range in.Workload.Windows {
			win := &in.Workload.Windows[i]
			win.Statements = append(win.Statements, of("rollback", *win, n))
			reads := win.Statements[0].Phases
			reads["read"] = reads["sync"] + reads["wait"]
			delete(reads, "sync")
			delete(reads, "wait")
		}
		for _, c := range []Class{in.From, in.To} {
			each(c, func(name string, o *Operation, _ *Load) {
				if name == "sync" {
					o.Times = of("", in.Workload.Windows[0], n).Response // few, as the rollbacks are
				}
			})
		}
		allFinite(t, predicted(t, in))
	}
}

// A workload of nothing but rare kinds beside one is not simulated without them.
func TestManyRareKinds(t *testing.T) {
	in := busy(t, 1)
	for i := range in.Workload.Windows {
		win := &in.Workload.Windows[i]
		for n := range 40 {
			win.Statements = append(win.Statements, of(fmt.Sprintf("kind %d", n), *win, 0.002*win.Statements[0].Response.Count()))
		}
	}
	p := predicted(t, in)
	allFinite(t, p)
	if p.Refusal == nil || p.Refusal.Reason != Rare || !strings.Contains(p.Refusal.Text, "7 %") {
		t.Errorf("%+v, want that 7 %% are rare", p)
	}
}

// Where every kind is refused the reason for all is that of the one that there are most of.
func TestMostFrequentKindsReason(t *testing.T) {
	in := busy(t, 4)
	for i := range in.Workload.Windows {
		win := &in.Workload.Windows[i]
		win.Statements = append(win.Statements, of("analyze", *win, 40))
		commit := win.Statements[0].Phases
		commit["runqueue"] += 10 * commit["sync"]
	}
	p := predicted(t, in)
	allFinite(t, p)
	if p.Refusal == nil || p.Refusal.Reason != Saturation {
		t.Errorf("%+v, want that commits wait for a CPU", p.Refusal)
	}
}

// What is counted nearly never, or took nearly no time, is no number that is none.
func TestNearlyNothing(t *testing.T) {
	for name, change := range map[string]func(*Input){
		"fractions of a statement": func(in *Input) {
			for i := range in.Workload.Windows {
				win := &in.Workload.Windows[i]
				win.Statements = append(win.Statements, of("rollback", *win, 1e-300))
			}
		},
		"phases without a statement": func(in *Input) {
			win := &in.Workload.Windows[1]
			s := of("rollback", *win, 500)
			clear(s.Response.Counts)
			win.Statements = append(win.Statements, s)
		},
		"no time": func(in *Input) {
			for i := range in.Workload.Windows {
				win := &in.Workload.Windows[i]
				win.Statements = []Statement{{"commit", Histogram{[]float64{5e-324}, []float64{1e6, 0}}, map[string]float64{}}}
			}
		},
		"no time of a read": func(in *Input) {
			in.Workload.SameCache = true
			for i := range in.Workload.Windows {
				in.Workload.Windows[i].Statements[0].Phases["read"] = 1
				for _, c := range []Class{in.From, in.To} {
					c.Windows[i].Operations["read"] = Operation{Times: Histogram{[]float64{5e-324}, []float64{1e6, 0}}}
				}
			}
		},
		"no time of a sync": func(in *Input) {
			for _, w := range in.From.Windows {
				w.Operations["sync"] = Operation{Times: Histogram{[]float64{5e-324}, []float64{3e5, 0}}}
			}
		},
		"endless phases": func(in *Input) { in.Workload.Windows[0].Statements[0].Phases["runqueue"] = 1e15 },
		"fractions of one that waits, others that do not": func(in *Input) {
			for i := range in.Workload.Windows {
				win := &in.Workload.Windows[i]
				for _, phase := range []string{"sync", "wait"} {
					delete(win.Statements[0].Phases, phase)
				}
				win.Statements = append(win.Statements, Statement{"rollback", Histogram{[]float64{0.001}, []float64{1e-308, 0}}, map[string]float64{"sync": 1e6}})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in := busy(t, 4)
			change(in)
			allFinite(t, predicted(t, in))
		})
	}
}
