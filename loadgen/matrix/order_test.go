package matrix

import (
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/result"
)

func names(targets []Target) string {
	var out []string
	for _, t := range targets {
		out = append(out, t.StorageClass)
	}
	return strings.Join(out, " ")
}

func TestOrder(t *testing.T) {
	targets := []Target{{StorageClass: "a"}, {StorageClass: "b"}, {StorageClass: "c"}, {StorageClass: "d"}}
	abba := Runner{Order: "abba"}
	if one, two := names(abba.inOrder(targets, "s", 1)), names(abba.inOrder(targets, "s", 2)); one != "a b c d" || two != "d c b a" {
		t.Errorf("abba: %s, %s", one, two)
	}
	random := Runner{Order: "random", Seed: 7}
	seen := map[string]bool{}
	for round := range 20 {
		got := names(random.inOrder(targets, "s", round))
		if got != names(random.inOrder(targets, "s", round)) {
			t.Error("the same seed gives another order")
		}
		seen[got] = true
	}
	if len(seen) < 5 || names(targets) != "a b c d" {
		t.Errorf("%d orders in 20 rounds; the targets are %s", len(seen), names(targets))
	}
	if _, err := (&Runner{Order: "backwards"}).Run(t.Context(), "wal", targets); err == nil || !strings.Contains(err.Error(), "unknown order") {
		t.Errorf("an unknown order: %v", err)
	}
}

// TestSummary: rounds of which each is slower than the one before for all, as on a machine that
// throttles. The ratio by pairs is exact all the same.
func TestSummary(t *testing.T) {
	r := Report{Repeat: 5, Order: "abba", Targets: []Target{{StorageClass: "local", Local: true}, {StorageClass: "r3"}, {StorageClass: "broken"}}}
	for round := 1; round <= 5; round++ {
		drift := 1 / float64(round)
		for class, rate := range map[string]float64{"local": 1000 * drift, "r3": 500 * drift * []float64{1, 1.01, 0.99, 1.01, 0.99}[round-1]} {
			r.Rows = append(r.Rows, Row{Step: "s", StorageClass: class, Round: round, Result: &result.Result{Rate: rate}})
		}
	}
	r.sumUp()
	i := slices.IndexFunc(r.Summaries, func(s Summary) bool { return s.StorageClass == "r3" })
	s := r.Summaries[i]
	if s.ToLocal == nil || s.ToLocal.Low < 1.95 || s.ToLocal.High > 2.05 || s.ToLocal.Low > 2 || s.ToLocal.High < 2 {
		t.Errorf("to local: %+v, want an interval around 2", s.ToLocal)
	}
	if s.Rate[0] < 160 || s.Rate[0] > 170 || s.Runs != 5 {
		t.Errorf("rate %v in %d runs", s.Rate, s.Runs)
	}
	if last := r.Summaries[2]; last.Runs != 0 || last.ToLocal != nil {
		t.Errorf("a class that never ran: %+v", last)
	}
	if text := r.summaryTable(); !strings.Contains(text, "| s | r3 | 5 | 16") {
		t.Errorf("%s", text)
	}
}
