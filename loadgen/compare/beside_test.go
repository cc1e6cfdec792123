package compare

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

// sharedSoak writes a soak of two classes on a machine whose speed wanders by a fifth within minutes, for both alike;
// machine is a factor on both, the best case for --beside, and r3 one on that class alone.
func sharedSoak(t *testing.T, random *rand.Rand, intervals int, machine, r3 float64) string {
	t.Helper()
	folder := t.TempDir()
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	every := 10 * time.Second
	writeLines(t, folder, "soak.json", map[string]any{"began": began, "plan": soak.Plan{Duration: time.Duration(intervals) * every, Interval: every,
		Targets: []matrix.Target{{StorageClass: "local"}, {StorageClass: "r3"}}}})
	writeLines(t, folder, "events.jsonl")
	var samples []any
	state := random.NormFloat64()
	for i := range intervals {
		state = 0.9*state + math.Sqrt(1-0.9*0.9)*random.NormFloat64()
		// A class's sample may be written before or after the other's.
		for k := range 2 {
			class, own := "local", 1.0
			if (k+i)%2 == 1 {
				class, own = "r3", 3*r3
			}
			if class == "local" && i%50 == 7 {
				continue // nothing ended in it
			}
			var d stats.Distribution
			for range 50 {
				d.Observe(time.Duration(2e6 * own * machine * math.Exp(0.2*state+0.2*random.NormFloat64())))
			}
			samples = append(samples, soak.Sample{Time: began.Add(time.Duration(i+1)*every + 3*time.Millisecond), StorageClass: class, Load: "canary", Response: d})
		}
	}
	writeLines(t, folder, "samples.jsonl", samples...)
	return folder
}

// TestBeside: what slows the whole machine is called slower of the times, and not of their multiples of the local
// disk's; what slows one class is distinguished from it, in half an hour in which the times' own noise would hide it.
func TestBeside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 7))
	wrong, found, alone := 0, 0, 0
	for range 20 {
		first := sharedSoak(t, random, 180, 1, 1)
		busier, slower := sharedSoak(t, random, 180, 1.3, 1), sharedSoak(t, random, 180, 1, 1.1)
		compared := func(second, beside string) *Comparison {
			c, err := Paths(first, second, Options{Beside: beside})
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		if c := compared(busier, "local"); c.Slower() {
			wrong++
		} else if len(c.Lines) != 2 || len(c.References) != 2 || c.Lines[0].Name != "r3" || c.References[0].Name != "local" {
			t.Fatalf("lines %+v, references %+v", c.Lines, c.References)
		} else if m := c.Lines[0].First.Multiple; m < 2.8 || m > 3.2 || c.Lines[0].First.Seconds != 0 || c.Lines[0].First.Values != 176 || c.Lines[0].First.Unpaired != 4 {
			t.Errorf("the first side is %+v, want 3 times local's in 180 intervals without 4", c.Lines[0].First)
		}
		if c := compared(slower, "local"); c.Lines[0].Verdict == Slower {
			found++
			if !strings.HasPrefix(c.Lines[0].Words, "surely slower: the second's time as a multiple of local's is") {
				t.Error(c.Lines[0].Words)
			}
		}
		if verdicts(compared(slower, ""))["r3, response, median"] == Slower {
			alone++
		}
	}
	t.Logf("of 20: a busier machine called a slower class in %d, +10 %% found in %d, by the times alone in %d", wrong, found, alone)
	if wrong > 3 || found < 19 || alone > 6 {
		t.Errorf("of 20: a busier machine called a slower class in %d, +10 %% found in %d, by the times alone in %d", wrong, found, alone)
	}
	busier, err := Paths(sharedSoak(t, random, 1000, 1, 1), sharedSoak(t, random, 1000, 1.3, 1), Options{Threshold: 0.05, Beside: "local"})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := busier.WriteMarkdown(&text); err != nil || !strings.Contains(text.String(), "- local's own times, which do not count: response, median, the second's to the first's 1.") ||
		!strings.Contains(text.String(), "second's multiple of local's time of the same moment") {
		t.Errorf("%v\n%s", err, &text)
	}
	if r := busier.References[0]; r.Verdict != Slower || r.Difference.Ratio < 1.15 || r.Difference.Ratio > 1.47 || busier.Slower() {
		t.Errorf("the machine was a third slower: %+v", busier.References)
	}
	if d := busier.Lines[0].Doubts; len(d) != 1 || !strings.HasPrefix(d[0], "local itself is slower: 1.") {
		t.Errorf("no doubt names the class beside it: %q", d)
	}
}

// TestMatricesBeside: by rounds; a step that is not measured beside the class is named.
func TestMatricesBeside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 8))
	drift := func(r *matrix.Report, level float64) *matrix.Report {
		for i := range r.Rows {
			r.Rows[i].Result.Rate /= level * math.Pow(1.1, float64(r.Rows[i].Round%4))
		}
		r.Rows = append(r.Rows, matrix.Row{Step: "reads", StorageClass: "r3", Round: 1, Result: &result.Result{Rate: 100}})
		return r
	}
	of := func(r3 float64) *matrix.Report {
		return run(random, 8, map[string]float64{"local": 1, "r1": 2, "r3": 3 * r3})
	}
	c, err := Paths(save(t, drift(of(1), 1)), save(t, drift(of(1.2), 1.5)), Options{Threshold: 0.1, Beside: "local"})
	if err != nil {
		t.Fatal(err)
	}
	if got := verdicts(c); got["wal on r1, time of an operation"] == Slower || got["wal on r3, time of an operation"] != Slower || len(got) != 2 {
		t.Errorf("%v", got)
	}
	if len(c.Lone) != 1 || c.Lone[0] != "reads on r3, time of an operation" {
		t.Errorf("without a local one beside it: %v", c.Lone)
	}
}

// TestNothingBeside: a class that is not there, or is more than one server, is refused by name.
func TestNothingBeside(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 9))
	one := save(t, run(random, 4, map[string]float64{"r1": 1, "r3": 2}))
	if _, err := Paths(one, one, Options{Beside: "local"}); err == nil || !strings.Contains(err.Error(), `no class "local" in both to compare beside; both have r1, r3`) {
		t.Error(err)
	}
	if _, err := Paths(one, one, Options{Beside: "r1"}); err != nil {
		t.Error(err)
	}
	alone := save(t, run(random, 4, map[string]float64{"r1": 1}))
	if _, err := Paths(alone, alone, Options{Beside: "r1"}); err == nil || !strings.Contains(err.Error(), `nothing in both is measured beside "r1"`) {
		t.Error(err)
	}
	r := record(random, 100, 2, 1)
	r.Classes[0].Database = "first"
	r.Classes = append(r.Classes, baseline.RecordClass{StorageClass: "class 0", Database: "second", Result: r.Classes[0].Result, Intervals: r.Classes[0].Intervals})
	two := save(t, r)
	if _, err := Paths(two, two, Options{Beside: "class 0"}); err == nil || !strings.Contains(err.Error(), `2 servers are on class 0; compare beside one of them: "class 0 first", "class 0 second"`) {
		t.Error(err)
	}
	if c, err := Paths(two, two, Options{Beside: "class 0 second"}); err != nil || len(c.Lines) != 4 || len(c.References) != 2 {
		t.Errorf("%v %+v", err, c)
	}
	c, err := Paths(two, two, Options{Beside: "class 1"})
	if err != nil || len(c.Lines) != 4 || c.Lines[0].First.Values != 100 {
		t.Errorf("%v %+v", err, c)
	}
}

// TestOver: values find each other by the nearest ends of intervals that do not begin at the same time, each once, and
// what has none is counted.
func TestOver(t *testing.T) {
	const second = int64(time.Second)
	var a, b series
	for i := range int64(10) {
		a.add(i*10*second+4900*int64(time.Millisecond), 3)
		if i != 4 {
			b.add(i*10*second+5100*int64(time.Millisecond), 2)
		}
	}
	a.add(95*second, 9) // a second one in the last interval: the soak was started again
	a.values[7] = 0     // failed
	got := a.over(b, 5*time.Second)
	if len(got.values) != 8 || got.unpaired != 2 {
		t.Errorf("%+v", got)
	}
	for _, v := range got.values {
		if v != 1.5 {
			t.Errorf("a multiple of %v, want 1.5", v)
		}
	}
}
