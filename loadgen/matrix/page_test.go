package matrix

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/result"
)

// simulated is a matrix of two steps on four classes with noise of 3 %: r3 takes three times as long as the
// local disk, twin as long, and gone fails.
func simulated(rounds int) *Report {
	random := rand.New(rand.NewPCG(3, uint64(rounds)))
	r := &Report{Schema: SchemaVersion, Matrix: "wal", Source: "A <test>.", Scale: 1, MaxClients: 8, Least: 5, Began: time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC), Repeat: rounds, Order: "abba",
		Environment: Environment{CPU: "a CPU", CPUs: 2, MemoryBytes: 8e9, Kernel: "6.18", Versions: map[string]string{"fio": "fio-3.33"}},
		Targets:     []Target{{StorageClass: "local", Local: true, Replicas: 1}, {StorageClass: "twin", Replicas: 1}, {StorageClass: "longhorn-r3", Replicas: 3}, {StorageClass: "gone", Replicas: 1}}}
	for _, step := range []string{"fio wal 8k", "pgbench 4 clients"} {
		for round := 1; round <= rounds; round++ {
			classes := map[string]float64{"local": 1, "twin": 1, "longhorn-r3": 3}
			for _, class := range slices.Sorted(maps.Keys(classes)) { // the same noise each time
				times := classes[class]
				row := Row{Step: step, StorageClass: class, Round: round, Began: r.Began, Ended: r.Began.Add(time.Minute), CPUIdle: 0.7,
					Result: &result.Result{Tool: "fio", Profile: step, Seconds: 60, Completed: 60000, Rate: 1000 / times * math.Exp(0.03*random.NormFloat64())}}
				limit := Limit{What: limitUnknown, Because: "no layers were recorded"}
				if class == "longhorn-r3" {
					row.Layers = &Layers{Of: "write", Mean: 0.003, Words: "w", Parts: []Part{{"device", 0.0005}, {"network", 0.002}, {"disk", 0.0005}}}
					limit = row.limit()
				}
				row.Limit = &limit
				r.Rows = append(r.Rows, row)
			}
			r.Rows = append(r.Rows, Row{Step: step, StorageClass: "gone", Round: round, Began: r.Began, Ended: r.Began, Error: "no <room>"})
		}
	}
	r.sumUp()
	return r
}

func (r *Report) class(name string) Class {
	for _, c := range r.Classes {
		if c.StorageClass == name {
			return c
		}
	}
	return Class{}
}

// A class's verdict over all steps has an interval from four rounds on, and notes where it has none.
func TestClasses(t *testing.T) {
	r := simulated(6)
	slow, twin, gone := r.class("longhorn-r3"), r.class("twin"), r.class("gone")
	if d := slow.Difference; slow.Verdict != "surely slower" || d == nil || d.Low < 2.8 || d.High > 3.2 || d.Low > 3 || d.High < 3 || slow.Steps != 2 || slow.Rounds != 6 {
		t.Errorf("longhorn-r3: %+v, %+v; want about 3", slow, d)
	}
	if want := "an operation's time is 3."; !strings.HasPrefix(slow.Words, want) || !strings.Contains(slow.Words, " times as long as on local: with 95 % confidence between ") {
		t.Errorf("longhorn-r3: %q, want %q", slow.Words, want)
	}
	if got := slow.Why(); got != "network in 12 of 12 runs" {
		t.Errorf("longhorn-r3's limit: %q", got)
	}
	if twin.Verdict != "inconclusive" || !strings.Contains(twin.Words, "could not have been seen") || twin.Why() != "unknown in 12 of 12 runs" {
		t.Errorf("twin: %+v, %s", twin, twin.Why())
	}
	if gone.Verdict != "not measured" || gone.Ratio != 0 || gone.Why() != limitUnknown || r.class("local").Verdict != "reference" {
		t.Errorf("gone: %+v, local: %+v", gone, r.class("local"))
	}
	if once := simulated(1).class("longhorn-r3"); once.Verdict != "too few rounds" || once.Difference != nil || once.Ratio < 2.5 || !strings.Contains(once.Words, "in 1 round; how sure") {
		t.Errorf("one round: %+v", once)
	}
	// A round in which one step failed would compare other things.
	holed := simulated(6)
	for i := range holed.Rows {
		if row := &holed.Rows[i]; row.Step == "fio wal 8k" && row.StorageClass == "longhorn-r3" && row.Round == 2 {
			row.Result, row.Error = nil, "broken"
		}
	}
	holed.sumUp()
	if c := holed.class("longhorn-r3"); c.Rounds != 5 || c.Steps != 2 || c.Difference == nil {
		t.Errorf("with a hole: %+v", c)
	}
	// A class that failed its hard step is not faster for it without a word.
	easy := simulated(6)
	for i := range easy.Rows {
		if row := &easy.Rows[i]; row.Step == "fio wal 8k" && row.StorageClass == "twin" {
			row.Result, row.Error = nil, "broken"
		}
	}
	easy.sumUp()
	if c := easy.class("twin"); c.Steps != 1 || len(c.LeftOut) != 1 || !strings.HasSuffix(c.Words, "; without fio wal 8k, not measured on twin") {
		t.Errorf("with a step that failed on one class: %+v", c)
	}
	other := simulated(6)
	other.Targets[0].Local = false
	other.Targets[0], other.Targets[2] = other.Targets[2], other.Targets[0]
	other.sumUp()
	if c := other.class("local"); c.Verdict != "surely faster" || c.Reference != "longhorn-r3" || !strings.Contains(c.Words, "67 % shorter than on longhorn-r3") {
		t.Errorf("beside the first class where none is local: %+v", c)
	}
}

// Equal classes are called surely slower or faster in no more than about one of twenty matrices, and one
// that takes a tenth longer is in most.
func TestClassRates(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	verdict := func(factor float64) string {
		r := Report{Repeat: 6, Targets: []Target{{StorageClass: "local", Local: true}, {StorageClass: "r1"}}}
		for step := range 5 {
			for round := 1; round <= 6; round++ {
				for _, class := range []string{"local", "r1"} {
					times := map[string]float64{"local": 1, "r1": factor}[class]
					r.Rows = append(r.Rows, Row{Step: fmt.Sprint(step), StorageClass: class, Round: round, Result: &result.Result{Rate: 1000 / times * math.Exp(0.08*random.NormFloat64())}})
				}
			}
		}
		r.sumUpClasses()
		return r.class("r1").Verdict
	}
	wrong, detected := 0, 0
	for range 400 {
		if verdict(1) != "inconclusive" {
			wrong++
		}
		if verdict(1.1) == "surely slower" {
			detected++
		}
	}
	t.Logf("%d of 400 equal classes called different, +10 %% in %d", wrong, detected)
	if wrong > 32 || detected < 300 {
		t.Errorf("%d of 400 equal classes are called different, +10 %% in %d", wrong, detected)
	}
}

// The page names the slowest class first, with ratio, verdict, interval and limit, needs nothing from
// elsewhere, and names what is not known.
func TestPage(t *testing.T) {
	page := func(r *Report) string {
		var b strings.Builder
		if err := r.WriteHTML(&b); err != nil {
			t.Fatal(err)
		}
		if out := os.Getenv("MATRIX_PAGE"); out != "" { // for a look at it
			if err := os.WriteFile(out, []byte(b.String()), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return b.String()
	}
	once, text := page(simulated(1)), page(simulated(6))
	first := strings.Index(text, `<div class="class">`)
	for _, want := range []string{"<b>longhorn-r3: ", "surely slower", "with 95 % confidence between", "network in 12 of 12 runs"} {
		if i := strings.Index(text, want); i < first || i > first+700 {
			t.Errorf("%q is not in the first lines, which have what a reader came for", want)
		}
	}
	for _, want := range []string{"A &lt;test&gt;.", "no &lt;room&gt;", "network 2.00 ms, 67 %", "a write: 3.00 ms", "unknown: no layers were recorded", "not measured",
		"fio wal 8k on gone, rounds 1, 2, 3, 4, 5, 6: no &lt;room&gt;"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if want := "fio wal 8k on gone, round 1: no &lt;room&gt;"; !strings.Contains(once, want) {
		t.Errorf("the page of one round has no %q", want)
	}
	for _, not := range []string{"ZgotmplZ", "<script", "http://", "https://", "NaN", "how sure the figures are is unknown"} {
		if strings.Contains(text, not) {
			t.Errorf("the page has %q", not)
		}
	}
	if !strings.Contains(once, "how sure the figures are is unknown") || strings.Contains(once, `class="range"`) || strings.Contains(once, "95 % confidence") {
		t.Error("a page of one round has intervals, or does not state that there are none")
	}
	// Everything drawn is on the axis, the range around its dot, and 1 is to the left of 3.
	var last float64
	for _, m := range regexp.MustCompile(`class="range" style="left:([0-9.]+)%;width:([0-9.]+)%"></div><div class="dot" style="left:([0-9.]+)%`).FindAllStringSubmatch(text, -1) {
		var v [3]float64
		for i := range v {
			v[i], _ = strconv.ParseFloat(m[i+1], 64)
		}
		if v[0] < 0 || v[0]+v[1] > 100.01 || v[2] < v[0] || v[2] > v[0]+v[1] {
			t.Errorf("a range from %v, %v wide, has its dot at %v", v[0], v[1], v[2])
		}
		last = max(last, v[2])
	}
	if last < 80 {
		t.Errorf("the slowest class' dot is at %v %% of the axis, want its end", last)
	}
}

// A job's log has the result between its own lines and the table.
func TestReadLog(t *testing.T) {
	r := simulated(6)
	var result strings.Builder
	if err := r.WriteJSON(&result); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "job.log")
	for text, want := range map[string]string{
		"time=2026-11-23 level=INFO msg=run\n" + result.String() + "# wal\n\n| class |\n": "",
		"level=INFO\n" + result.String() + result.String():                                "there are 2 results in it",
		"level=INFO\n" + result.String()[:result.Len()/2]:                                 "result 1 is cut: it has no end",
		"level=INFO msg=\"no result\"\n":                                                  "invalid character",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		back, err := Read(path)
		switch {
		case want == "" && (err != nil || len(back.Rows) != len(r.Rows)):
			t.Errorf("%v, read %+v", err, back)
		case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// What was written can be read again, and a page be made of it.
func TestReadBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "today.json")
	write := func(r *Report) {
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if err := r.WriteJSON(file); err != nil {
			t.Fatal(err)
		}
	}
	r := simulated(6)
	if _, err := validate(t, schema(t), r); err != nil {
		t.Errorf("does not match schema.json: %v", err)
	}
	write(r)
	back, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	var a, b strings.Builder
	if err := r.WriteHTML(&a); err != nil {
		t.Fatal(err)
	}
	if err := back.WriteHTML(&b); err != nil || a.String() != b.String() {
		t.Errorf("the page of what was read differs (%v)", err)
	}
	r.Schema++
	write(r)
	if _, err := Read(path); err == nil || !strings.Contains(err.Error(), "a later version") {
		t.Errorf("a later version's result: %v", err)
	}
}
