package predict

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// small is an input that is predicted from, in few bytes.
func small() Input {
	h := func(counts ...float64) Histogram {
		return Histogram{Bounds: []float64{0.001, 0.002, 0.004, 0.008}, Counts: append(counts, 0)}
	}
	var in Input
	in.Version, in.Workload.Name, in.Workload.Engine, in.Workload.Clients = Version, "w", "postgresql", 2
	for range LeastWindows {
		in.Workload.Windows = append(in.Workload.Windows, Window{10, []Statement{{"commit", h(0, 300, 600, 100), map[string]float64{"cpu": 0.3, "sync": 2, "wait": 0.4}}}})
		in.From.Windows = append(in.From.Windows, Load{10, "", map[string]Operation{"sync": {Times: h(100, 500, 300, 0)}}})
		in.To.Windows = append(in.To.Windows, Load{10, "", map[string]Operation{"sync": {Times: h(0, 100, 500, 300)}}})
	}
	return in
}

// What anybody may write is refused as a file, refused as a question, or gives numbers.
func FuzzRead(f *testing.F) {
	for _, change := range []func(*Input){func(*Input) {}, func(in *Input) { in.Workload.Clients = 0 }, func(in *Input) { in.To.Windows = nil },
		func(in *Input) { in.Workload.Windows[0].Statements[0].Phases["sync"] = 1e12 },
		func(in *Input) {
			in.Workload.SameCache = true
			in.Workload.Windows[0].Statements[0].Phases["read"] = 1e12
			in.From.Windows[0].Operations["read"] = in.From.Windows[0].Operations["sync"]
		},
		func(in *Input) {
			win := &in.Workload.Windows[0]
			win.Statements = append(win.Statements, Statement{"rollback", Histogram{[]float64{0.004}, []float64{200, 0}}, map[string]float64{"sync": 0.5}})
			for i := range in.Workload.Windows {
				in.Workload.Windows[i].Statements[0].Response.Counts[2] = 1e6
			}
		}} {
		in := small()
		change(&in)
		text, err := json.Marshal(in)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		in, err := Read(strings.NewReader(text))
		if err != nil {
			return
		}
		p, err := Predict(in)
		if err != nil {
			t.Fatal(err)
		}
		if p.Refusal == nil && len(p.Statements) == 0 {
			t.Error("neither numbers nor a reason")
		}
		if p.Refusal != nil && !strings.Contains(text, "NaN") && !strings.Contains(text, "Inf") && (strings.Contains(p.Refusal.Text, "NaN") || strings.Contains(p.Refusal.Text, "Inf")) {
			t.Error(p.Refusal.Text)
		}
		for _, s := range p.Statements {
			if s.Refusal != nil {
				continue
			}
			for _, v := range []*Value{s.Median, s.P99} {
				for _, n := range []float64{v.Now, v.Expected, v.Low, v.High} {
					if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
						t.Errorf("%s: %+v", s.Kind, *v)
					}
				}
			}
		}
	})
}
