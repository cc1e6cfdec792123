package compare

import (
	"encoding/json"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/soak"
	"github.com/plumbline/plumbline/loadgen/stats"
)

func save(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "result.json")
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}

// run is a matrix of a step on three classes, each with a factor on its time.
func run(random *rand.Rand, repeat int, times map[string]float64) *matrix.Report {
	r := &matrix.Report{Matrix: "wal", Scale: 1, Repeat: repeat}
	for round := 1; round <= repeat; round++ {
		for _, class := range slices.Sorted(maps.Keys(times)) { // the same noise each time
			time := times[class]
			r.Rows = append(r.Rows, matrix.Row{Step: "wal", StorageClass: class, Round: round, CPUIdle: 0.8,
				Result: &result.Result{Rate: 1000 / time * math.Exp(random.NormFloat64()*0.03)}})
		}
	}
	return r
}

func verdicts(c *Comparison) map[string]Verdict {
	out := map[string]Verdict{}
	for _, l := range c.Lines {
		out[l.Name+", "+l.Metric] = l.Verdict
	}
	return out
}

func TestMatrices(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	before := run(random, 8, map[string]float64{"local": 1, "r1": 2, "r3": 3, "gone": 1})
	after := run(random, 8, map[string]float64{"local": 1, "r1": 2.6, "r3": 2, "new": 1})
	c, err := Paths(save(t, before), save(t, after), Options{Threshold: 0.10})
	if err != nil {
		t.Fatal(err)
	}
	got := verdicts(c)
	for name, want := range map[string]Verdict{"wal on local, time of an operation": Same, "wal on r1, time of an operation": Slower, "wal on r3, time of an operation": Faster} {
		if got[name] != want {
			t.Errorf("%s: %s, want %s: %+v", name, got[name], want, c.Lines)
		}
	}
	if !c.Slower() || strings.Join(c.OnlyA, "") != "wal on gone" || strings.Join(c.OnlyB, "") != "wal on new" {
		t.Errorf("slower %v, only %v, %v", c.Slower(), c.OnlyA, c.OnlyB)
	}
	var text strings.Builder
	if err := c.WriteMarkdown(&text); err != nil || !strings.Contains(text.String(), "3 compared: 1 slower, 1 faster, 1 without a difference") {
		t.Errorf("%v\n%s", err, &text)
	}
	// One run each gives no verdict, however far apart they are.
	c, err = Paths(save(t, run(random, 1, map[string]float64{"r1": 1})), save(t, run(random, 1, map[string]float64{"r1": 3})), Options{Threshold: 0.05})
	if err != nil || c.Lines[0].Verdict != TooShort || c.Slower() {
		t.Errorf("single runs: %v %+v", err, c)
	}
}

func TestRefused(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	whole := run(random, 4, map[string]float64{"r1": 1})
	good := save(t, whole)
	scaled, other := *whole, *whole
	scaled.Scale, other.Matrix = 0.1, "dbench"
	for want, second := range map[string]string{
		"the scale is 1 and 0.1":                        save(t, scaled),
		"the matrix is wal and dbench":                  save(t, other),
		"not a matrix's result":                         save(t, map[string]string{"matrix": ""}),
		"nothing in common":                             save(t, run(random, 4, map[string]float64{"r9": 1})),
		"no such file":                                  filepath.Join(t.TempDir(), "none.json"),
		"a folder, but no soak's":                       t.TempDir(),
		"it is a JSON array, and not a matrix's result": save(t, []int{1}),
		"only equal things can be compared":             makeSoak(t, random, 100, 1),
	} {
		if _, err := Paths(good, second, Options{Threshold: 0.05}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

// writeLines writes a file of a soak's folder.
func writeLines(t *testing.T, folder, name string, values ...any) {
	t.Helper()
	var b strings.Builder
	for _, v := range values {
		line, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(string(line) + "\n")
	}
	if err := os.WriteFile(filepath.Join(folder, name), []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

// makeSoak writes a soak's folder: intervals of 10 s whose level wanders by 10 % over some minutes, and
// a fault of ten minutes in the middle that makes everything ten times as slow.
func makeSoak(t *testing.T, random *rand.Rand, intervals int, level float64) string {
	t.Helper()
	return makeSoakOf(t, random, intervals, level, time.Duration(intervals)*10*time.Second)
}

// makeSoakOf is one that was planned for longer than it ran.
func makeSoakOf(t *testing.T, random *rand.Rand, intervals int, level float64, planned time.Duration) string {
	t.Helper()
	folder := t.TempDir()
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	plan := soak.Plan{Duration: planned, Interval: 10 * time.Second, Targets: []matrix.Target{{StorageClass: "r3"}, {StorageClass: "local"}}}
	writeLines(t, folder, "soak.json", map[string]any{"began": began, "plan": plan})
	from, to := began.Add(time.Duration(intervals/2)*10*time.Second), began.Add(time.Duration(intervals/2+60)*10*time.Second)
	writeLines(t, folder, "events.jsonl", soak.Event{Time: from, Kind: soak.FaultEvent, Name: "f", What: soak.Begin}, soak.Event{Time: to, Kind: soak.FaultEvent, Name: "f", What: soak.End})
	var samples []any
	state := random.NormFloat64()
	for i := range intervals {
		state = 0.95*state + math.Sqrt(1-0.95*0.95)*random.NormFloat64()
		at := began.Add(time.Duration(i+1) * 10 * time.Second)
		factor := 1.0
		if at.After(from) && !at.After(to) {
			factor = 10
		}
		var d stats.Distribution
		for range 50 {
			d.Observe(time.Duration(5e6 * level * factor * math.Exp(0.1*state+0.4*random.NormFloat64())))
		}
		samples = append(samples, soak.Sample{Time: at, StorageClass: "r3", Load: "canary", Response: d})
	}
	writeLines(t, folder, "samples.jsonl", samples...)
	return folder
}

// A soak of months is read in longer intervals; then so is the one that it is compared with, and neither loses its
// samples.
func TestLongSoaks(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	short, long := makeSoak(t, random, 2000, 1), makeSoakOf(t, random, 2000, 1, 60*24*time.Hour)
	var c Comparison
	pairs, err := c.soaks(short, long)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pairs {
		// 2,000 intervals, 11 to one, without the 60 of the fault and those that touch it.
		if n := len(p.a.values); n != len(p.b.values) || n < 170 || n > 178 {
			t.Errorf("%s: %d and %d values", p.metric, n, len(p.b.values))
		}
	}
	if len(pairs) != 2 {
		t.Errorf("%d pairs", len(pairs))
	}
}

// A soak that was killed in a phase wrote no end of it. Of the second only the intervals of the phase are left out, not
// all after it.
func TestKilledInAPhase(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 3))
	whole, killed := makeSoak(t, random, 720, 1), makeSoak(t, random, 720, 1)
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	var text strings.Builder
	for _, e := range []soak.Event{
		{Time: began, Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
		{Time: began.Add(10 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin},
		{Time: began.Add(20*time.Minute + 5*time.Second), Kind: soak.SoakEvent, Name: "soak", What: soak.Begin},
		{Time: began.Add(60 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin},
		{Time: began.Add(70 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.End},
		{Time: began.Add(120 * time.Minute), Kind: soak.PhaseEvent, Name: "burst", What: soak.Begin}, // killed for good
	} {
		line, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		text.WriteString(string(line) + "\n")
	}
	if err := os.WriteFile(filepath.Join(killed, "events.jsonl"), []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Paths(whole, killed, Options{Threshold: 0.05})
	if err != nil {
		t.Fatal(err)
	}
	// Of 720 intervals, two times 60 and the one or two after.
	for _, l := range c.Lines {
		if n := l.Second.Values; n < 720-2*62 || n > 720-2*61 {
			t.Errorf("%s: %d intervals of the killed one are compared", l.Metric, n)
		}
	}
}

// TestSoaks: soaks of two hours of the same system differ only by chance. +10 % is found in half a day's. What a
// planned fault did is not compared.
func TestSoaks(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	wrong := 0
	for range 10 {
		c, err := Paths(makeSoak(t, random, 720, 1), makeSoak(t, random, 720, 1), Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range c.Lines {
			if l.Verdict == Slower || l.Verdict == Faster {
				wrong++
				break
			}
		}
	}
	if wrong > 2 {
		t.Errorf("%d of 10 pairs of equal soaks are called different", wrong)
	}
	c, err := Paths(makeSoak(t, random, 4320, 1), makeSoak(t, random, 4320, 1.1), Options{Threshold: 0.02})
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range c.Lines {
		if l.Verdict != Slower || l.Difference.Ratio < 1.05 || l.Difference.Ratio > 1.15 {
			t.Errorf("+10 %%: %s is %s, %+v", l.Metric, l.Verdict, l.Difference)
		}
	}
	if c, err = Paths(makeSoak(t, random, 40, 1), makeSoak(t, random, 40, 1), Options{}); err == nil && c.Lines[0].Verdict != TooShort {
		t.Errorf("a soak of six minutes: %s", c.Lines[0].Verdict)
	}
}
