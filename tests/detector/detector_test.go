package detector

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	full  = flag.Bool("full", false, "every regression and the alerts of others, a healthy day before each; takes minutes a seed")
	seeds = flag.Int("seeds", 1, "seeds of each kind of noise")
)

// deadlines are the minutes within which every seed's regression must be found.
var deadlines = map[string]float64{"+30 %": 60, "+60 %": 20, "+100 %": 10}

// The alerts, on every kind of noise: none is false, +30 % and +100 % are found in time and not
// forgotten. With -full it prints the table of all steps, beside that of published detectors.
func TestDetectors(t *testing.T) {
	promtool := testkit.Tool(t, "promtool")
	rules := []string{filepath.Join(testkit.Root(), "rules", "canary.rules.yaml")}
	healthy, after, whats := 6*60, 2*60, []regression{regressions[0], regressions[2], regressions[4]}
	alerts := []string{"CanarySlow", "CanarySlowForHours"}
	if *full {
		others, err := filepath.Abs("testdata/others.rules.yaml")
		if err != nil {
			t.Fatal(err)
		}
		rules = append(rules, others)
		healthy, after, whats = 24*60, 6*60, regressions
		alerts = append(alerts, "ZScore", "MedianBand", "LaggedMedian")
	}
	for _, kind := range noises {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			results := make([]map[string]map[string]outcome, *seeds)
			for i := range results {
				var err error
				if results[i], err = run(promtool, t.TempDir(), rules, kind, uint64(i+1), healthy, after, whats); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%s noise: seeds detected, median minutes to the first firing, share of the last hour still firing; false minutes in %d h\n%s",
				kind.name, *seeds*healthy/60, table(results, alerts, whats))
			for i, found := range results {
				judge(t, i+1, found, whats)
			}
		})
	}
}

// judge checks our own alerts on one seed.
func judge(t *testing.T, seed int, found map[string]map[string]outcome, whats []regression) {
	for _, alert := range []string{"CanarySlow", "CanarySlowForHours"} {
		if o := found[alert]["none"]; o.False > 0 || o.Last > 0 {
			t.Errorf("seed %d: %s fired %.0f minutes while all was well", seed, alert, o.False+60*o.Last)
		}
	}
	for _, what := range whats {
		deadline, ok := deadlines[what.name]
		if !ok {
			continue
		}
		o, fired := found["CanarySlow"][what.name]
		if !fired || math.IsNaN(o.Delay) || o.Delay > deadline {
			t.Errorf("seed %d: %s was found after %v minutes (fired: %v); want %v", seed, what.name, o.Delay, fired, deadline)
		}
		if o.Last < 0.5 {
			t.Errorf("seed %d: %s is forgotten: CanarySlow fires in %.0f %% of the last hour", seed, what.name, 100*o.Last)
		}
	}
}

// table is a row for each alert, a column for each regression.
func table(results []map[string]map[string]outcome, alerts []string, whats []regression) string {
	var b strings.Builder
	for _, alert := range alerts {
		fmt.Fprintf(&b, "  %-18s", alert)
		wrong := 0.0
		for _, what := range whats {
			var delays []float64
			last := 0.0
			for _, found := range results {
				o, fired := found[alert][what.name]
				if what.name == "none" {
					wrong += o.False
					continue
				}
				last += o.Last
				if fired && !math.IsNaN(o.Delay) {
					delays = append(delays, o.Delay)
				}
			}
			if what.name == "none" {
				continue
			}
			cell := fmt.Sprintf("%d/%d", len(delays), len(results))
			if len(delays) > 0 {
				slices.Sort(delays)
				cell += fmt.Sprintf(" %3.0f min %3.0f %%", delays[len(delays)/2], 100*last/float64(len(results)))
			}
			fmt.Fprintf(&b, " | %s: %-18s", what.name, cell)
		}
		fmt.Fprintf(&b, " | false: %.0f\n", wrong)
	}
	return b.String()
}
