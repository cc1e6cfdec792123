package predict

import (
	"math"
	"strings"
	"testing"
)

// beside predicts a workload of commits with another kind beside them; change may change what was measured.
func beside(t *testing.T, other func(win Window) Statement, change func(*Input)) *Prediction {
	t.Helper()
	in := busy(t, 1)
	for i := range in.Workload.Windows {
		win := &in.Workload.Windows[i]
		win.Statements = append(win.Statements, other(*win))
	}
	change(in)
	p := predicted(t, in)
	allFinite(t, p)
	return p
}

// kindOf is what is predicted of a kind.
func kindOf(t *testing.T, p *Prediction, kind string) Predicted {
	t.Helper()
	for _, s := range p.Statements {
		if s.Kind == kind {
			return s
		}
	}
	t.Fatalf("nothing of %s: %+v", kind, p)
	return Predicted{}
}

// A statement that is longer than the last bound is no error. If many of a kind are, the prediction reports it, beside
// the others' numbers.
func TestEndlessStatements(t *testing.T) {
	endless := func(n float64) Statement {
		return Statement{"copy", Histogram{[]float64{16, 32}, []float64{0, 0, n}}, map[string]float64{"cpu": 1}}
	}
	for name, c := range map[string]struct {
		other  func(Window) Statement
		change func(*Input)
		kind   string
		want   Reason
	}{
		"one that does not wait for storage": {func(Window) Statement { return endless(1) }, func(*Input) {}, "", ""},
		"one of many": {func(win Window) Statement { return of("insert", win, 1e6) }, func(in *Input) {
			counts := in.Workload.Windows[0].Statements[1].Response.Counts
			counts[len(counts)-1] = 1
		}, "insert", ""},
		"all in a window, few of all": {func(win Window) Statement { return of("insert", win, 1e6) }, func(in *Input) {
			counts := in.Workload.Windows[0].Statements[1].Response.Counts
			clear(counts)
			counts[len(counts)-1] = 1e4
		}, "insert", ""},
		"one in fifty": {func(win Window) Statement { return of("insert", win, 1e6) }, func(in *Input) {
			for i := range in.Workload.Windows {
				counts := in.Workload.Windows[i].Statements[1].Response.Counts
				counts[len(counts)-1] = 2e4
			}
		}, "insert", Unmeasured},
		"reads that nobody waits for": {func(Window) Statement { return endless(1) }, func(in *Input) {
			in.To.Windows[0].Operations["read"] = Operation{Times: Histogram{[]float64{1}, []float64{0, 9}}}
		}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := beside(t, c.other, c.change)
			if p.Refusal != nil {
				t.Fatal(p.Refusal)
			}
			if commit := kindOf(t, p, "commit"); commit.Refusal != nil {
				t.Error(commit.Refusal)
			}
			if c.kind == "" {
				return
			}
			if r := kindOf(t, p, c.kind).Refusal; c.want == "" && r != nil || c.want != "" && (r == nil || r.Reason != c.want || !strings.Contains(r.Text, "one in 200 of "+c.kind)) {
				t.Errorf("%v, want %q", r, c.want)
			}
		})
	}
	in := busy(t, 1)
	for _, w := range in.To.Windows {
		o := w.Operations["sync"]
		o.Times.Counts[len(o.Times.Counts)-1] += 0.02 * o.Times.Count()
	}
	if p := predicted(t, in); p.Refusal == nil || p.Refusal.Reason != Unmeasured || !strings.Contains(p.Refusal.Text, "sync of class there") {
		t.Errorf("%+v, want that the syncs of the class have no end", p.Refusal)
	}
}

// A kind that reads, or writes without a sync, is refused alone: commits are predicted beside it, as they are without
// it.
func TestRefusesOneKind(t *testing.T) {
	phases := func(of map[string]float64) func(Window) Statement {
		return func(win Window) Statement {
			commit := win.Statements[0].Response
			s := Statement{"update", Histogram{commit.Bounds, nil}, map[string]float64{}}
			for _, c := range commit.Counts {
				s.Response.Counts = append(s.Response.Counts, c/10)
			}
			for phase, share := range of {
				s.Phases[phase] = share * s.Response.Mean() * s.Response.Count()
			}
			return s
		}
	}
	reads := func(c Class, seconds float64) {
		for _, w := range c.Windows {
			w.Operations["read"] = Operation{Times: Histogram{[]float64{seconds / 1.02, seconds}, []float64{0, 1e5, 0}}}
		}
	}
	alone := kindOf(t, predicted(t, busy(t, 1)), "commit")
	for name, c := range map[string]struct {
		other  map[string]float64
		change func(*Input)
		want   Reason
	}{
		"reads, caches unknown":     {map[string]float64{"read": 0.8, "cpu": 0.2}, func(*Input) {}, Caches},
		"reads, none measured":      {map[string]float64{"read": 0.8, "cpu": 0.2}, func(in *Input) { in.Workload.SameCache = true }, Unmeasured},
		"reads, none there":         {map[string]float64{"read": 0.8, "cpu": 0.2}, func(in *Input) { in.Workload.SameCache = true; reads(in.From, 0.001) }, Unmeasured},
		"more reads than there are": {map[string]float64{"read": 0.8, "cpu": 0.2}, func(in *Input) { in.Workload.SameCache = true; reads(in.From, 1e-8) }, Unexplained},
		"writes without a sync":     {map[string]float64{"write": 0.8, "cpu": 0.2}, func(*Input) {}, Caches},
	} {
		t.Run(name, func(t *testing.T) {
			p := beside(t, phases(c.other), c.change)
			if p.Refusal != nil {
				t.Fatal(p.Refusal)
			}
			commit, update := kindOf(t, p, "commit"), kindOf(t, p, "update")
			if commit.Refusal != nil || math.Abs(commit.Median.Expected/alone.Median.Expected-1) > 0.1 {
				t.Errorf("commits %+v, without the others %+v", commit, alone)
			}
			if update.Refusal == nil || update.Refusal.Reason != c.want || update.Refusal.Next == "" {
				t.Errorf("%+v, want %s", update.Refusal, c.want)
			}
			if printed := text(t, p); !strings.Contains(printed, "what update reads") && !strings.Contains(printed, "What update reads") {
				t.Error(printed)
			}
		})
	}
}
