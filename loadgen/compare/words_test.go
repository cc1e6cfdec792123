package compare

import (
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/stats"
)

func TestWords(t *testing.T) {
	d := func(ratio, low, high float64) *stats.Difference {
		return &stats.Difference{Ratio: ratio, Low: low, High: high}
	}
	for want, l := range map[string]Line{
		"surely slower: the second's time is 23 % longer, between 17 % longer and 30 % longer; of two runs, one of each, the second's is the slower in 99 of 100 cases": {
			Verdict: Slower, Difference: d(1.23, 1.17, 1.30), Superiority: 0.998},
		"surely faster: the second's time is 50 % shorter, between 60 % shorter and 38 % shorter; of two runs, one of each, the second's is the faster in 100 of 100 cases": {
			Verdict: Faster, Difference: d(0.5, 0.4, 0.625), Superiority: 0},
		"inconclusive: between 4.0 % shorter and 2.5 times as long; a slowdown under 160 % could not have been seen": {
			Verdict: Unsure, Difference: d(1.5, 0.96, 2.5), Seen: 1.6},
		"no difference that counts: between 1.0 % shorter and 1.0 % longer; a slowdown of 6.5 % would have been seen": {
			Verdict: Same, Difference: d(1, 0.99, 1.01), Seen: 0.065},
		"surely slower: the second's time is 5.04 % longer, between 0.03 % longer and 10 % longer; of two runs, one of each, the second's is the slower in 90 of 100 cases": {
			Verdict: Slower, Difference: d(1.0504, 1.0003, 1.1), Superiority: 0.9, limits: []float64{1, 1.05, 1 / 1.05}},
		string(Unsure) + ": between 5.0 % shorter and 5.03 % longer; a slowdown under 10.2 % could not have been seen": {
			Verdict: Unsure, Difference: d(1.02, 0.95, 1.0503), Seen: 0.102, limits: []float64{1, 1.05, 1 / 1.05, 1.1}},
		"no difference that counts: between 2.0 % shorter and 5.0 % longer; a slowdown of 8.0 % would have been seen": {
			Verdict: Same, Difference: d(1.02, 0.98, 1.05), Seen: 0.08, limits: []float64{1, 1.05, 1 / 1.05, 1.1}},
		"too few or too uneven runs for a verdict: 3 and 6": {Verdict: TooShort, First: Side{Values: 3}, Second: Side{Values: 6}},
	} {
		if got := l.words(pair{values: "runs"}); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

// TestSeen: what is reported as seen takes the threshold into account, and what could not have been seen is found for
// --must-see.
func TestSeen(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	side := func() string { return save(t, run(random, 8, map[string]float64{"r1": 1})) }
	c, err := Paths(side(), side(), Options{Threshold: 0.3})
	if err != nil {
		t.Fatal(err)
	}
	l := c.Lines[0]
	if l.Difference.Least > 0.1 || l.Seen < 0.3 || l.Seen > 0.4 {
		t.Errorf("least %v, seen %v with a threshold of 30 %%: a slowdown below the threshold is never called one", l.Difference.Least, l.Seen)
	}
	if l.First.Values != 8 || l.First.Seconds < 0.0009 || l.First.Seconds > 0.0011 {
		t.Errorf("the first side is %+v, want 8 runs of 1 ms", l.First)
	}
	if len(c.Blind(0.2)) != 1 || len(c.Blind(0.5)) != 0 {
		t.Errorf("blind to 20 %%: %v, to 50 %%: %v", c.Blind(0.2), c.Blind(0.5))
	}
	one := save(t, run(random, 1, map[string]float64{"r1": 1}))
	if c, err = Paths(one, one, Options{Threshold: 0.05}); err != nil || len(c.Blind(10)) != 1 {
		t.Errorf("single runs are blind to nothing: %v %+v", err, c)
	}
	slow := save(t, run(random, 4, map[string]float64{"r1": 2}))
	if c, err = Paths(side(), slow, Options{Threshold: 0.05}); err != nil || len(c.Blind(0.0001)) != 0 || !c.Slower() {
		t.Errorf("what is called slower was seen: %v %+v", err, c)
	}
}

// A machine without CPU to spare makes everything slow, which is sure and means nothing for the class.
func TestBusyMachineIsADoubt(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 8))
	before, after := run(random, 6, map[string]float64{"r1": 1, "r3": 1}), run(random, 6, map[string]float64{"r1": 4, "r3": 4})
	for i := range after.Rows {
		if row := &after.Rows[i]; row.StorageClass == "r1" && row.Round > 2 {
			row.CPUIdle = 0.02
		}
	}
	c, err := Paths(save(t, before), save(t, after), Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Lines {
		doubts, want := strings.Join(l.Doubts, "; "), ""
		if l.Name == "wal on r1" {
			want = "the generator's machine was busy in 0 of 6 and 4 of 6 runs"
		}
		if l.Verdict != Slower || doubts != want {
			t.Errorf("%s is %s, doubts %q, want %q", l.Name, l.Verdict, doubts, want)
		}
	}
}

// A run that failed is no run: it neither counts nor is the fastest of all.
func TestFailedRunsDoNotCount(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 7))
	before, after := run(random, 6, map[string]float64{"r1": 1}), run(random, 6, map[string]float64{"r1": 1.5})
	after.Rows[2].Result = nil
	after.Rows[2].Error = "no room"
	c, err := Paths(save(t, before), save(t, after), Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Lines[0]; l.Second.Values != 5 || l.Superiority != 1 || l.Verdict != Slower {
		t.Errorf("%+v", l)
	}
}

func TestBaselines(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 8))
	before, after := record(random, 1080, 2, 1), record(random, 1080, 2, 1.2)
	// A backup that doubles everything for half an hour, and is known to.
	for i := range after.Classes[1].Intervals[:180] {
		p := &after.Classes[1].Intervals[i]
		p.P50, p.P95, p.Expected = 2*p.P50, 2*p.P95, true
	}
	after.Classes[1].Spoilt = "3 of 9 failed"
	c, err := Paths(save(t, before), save(t, after), Options{Threshold: 0.10})
	if err != nil {
		t.Fatal(err)
	}
	got := verdicts(c)
	if c.Kind != "baseline" || got["class 0, response, median"] != Slower || got["class 0, response, p95"] != Slower {
		t.Errorf("%s: %v", c.Kind, got)
	}
	for _, l := range c.Lines[2:] {
		if l.Verdict == Slower || !slices.Contains(l.Doubts, "the second is spoilt: 3 of 9 failed") || l.Second.Values != 900 {
			t.Errorf("%+v", l)
		}
	}
	after.Classes[0].Database = "shop"
	if c, err = Paths(save(t, before), save(t, after), Options{Threshold: 0.10}); err != nil || strings.Join(c.OnlyA, "") != "class 0" || strings.Join(c.OnlyB, "") != "class 0 shop" {
		t.Errorf("%v, only %v, %v", err, c.OnlyA, c.OnlyB)
	}
	profile, rate := record(random, 100, 1, 1), record(random, 100, 1, 1)
	profile.Classes[0].Result.Profile, rate.Classes[0].Result.TargetRate = "wal-commit", 20
	rules := filepath.Join(t.TempDir(), "baseline.rules.yaml")
	if err := os.WriteFile(rules, []byte("groups:\n  - {name: baseline, rules: [{record: a:b, expr: vector(1)}]}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, second := range map[string]string{
		"the profile on class 0 is tpcb-like and wal-commit": save(t, profile),
		"the rate on class 0 is 10 and 20":                   save(t, rate),
		"pins have no confidence intervals":                  rules,
		"not a baseline's record":                            save(t, baseline.Record{Kind: baseline.RecordKind}),
		"a baseline, ":                                       save(t, run(random, 4, map[string]float64{"r1": 1})),
	} {
		if _, err := Paths(save(t, before), second, Options{Threshold: 0.05}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// The JSON has everything that a gate in CI needs, words included.
func TestComparisonJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 9))
	c, err := Paths(save(t, run(random, 8, map[string]float64{"r1": 1})), save(t, run(random, 8, map[string]float64{"r1": 2})), Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	if err := c.WriteJSON(&text); err != nil {
		t.Fatal(err)
	}
	var back Comparison
	if err := json.Unmarshal([]byte(text.String()), &back); err != nil {
		t.Fatal(err)
	}
	if l := back.Lines[0]; !strings.Contains(l.Words, "surely slower: the second's time is") || l.Seen <= 0 || l.Superiority != 1 || l.First.Seconds <= 0 {
		t.Errorf("%s", text.String())
	}
}
