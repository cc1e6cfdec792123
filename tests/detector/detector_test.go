package detector

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	full  = flag.Bool("full", false, "every regression and the alerts of others, a healthy day before each; takes minutes a seed")
	hours = flag.Int("hours", 0, "healthy hours before each regression; 0: 6, with -full 24")
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
	if *hours > 0 {
		healthy = *hours * 60
	}
	of := make([][]map[string]map[string]outcome, len(noises))
	if *full {
		t.Cleanup(func() { record(t, of, alerts, whats, healthy) })
	}
	for n, kind := range noises {
		t.Run(kind.name, func(t *testing.T) {
			t.Parallel()
			results := make([]map[string]map[string]outcome, *seeds)
			for i := range results {
				var err error
				if results[i], err = run(promtool, t.TempDir(), rules, kind, uint64(i+1), healthy, after, whats); err != nil {
					t.Fatal(err)
				}
			}
			of[n] = results
			t.Logf("%s noise: seeds detected, median minutes to the first firing, share of the last hour still firing; false minutes in %d h\n%s",
				kind.name, *seeds*healthy/60, table(results, alerts, whats))
			for i, found := range results {
				judge(t, kind, i+1, found, whats)
			}
		})
	}
}

// A backup that nobody declared is an alert; while a declared one runs, a small slowness is none,
// but what is five times as slow is one at once.
func TestExpectedWindow(t *testing.T) {
	t.Parallel()
	promtool := testkit.Tool(t, "promtool")
	rules := []string{filepath.Join(testkit.Root(), "rules", "canary.rules.yaml")}
	none := regressions[0]
	declared := noises[slices.IndexFunc(noises, func(n noise) bool { return n.expected != nil })]
	for _, test := range []struct {
		name           string
		windows        []string
		healthy, after int
		what           regression
		fires          bool
	}{
		{"nobody knows of it", nil, 180, 60, none, true},
		{"another time is declared", []string{"nightly backup 05:00-05:30 UTC"}, 180, 60, none, true},
		{"declared", declared.expected, 180, 60, none, false},
		{"declared, and five times as slow within it", declared.expected, backupBegins + 3, 15, step("+400 %", 4), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			kind := declared
			kind.expected = test.windows
			found, err := run(promtool, t.TempDir(), rules, kind, 1, test.healthy, test.after, []regression{test.what})
			if err != nil {
				t.Fatal(err)
			}
			o, fired := found["CanarySlow"][test.what.name]
			if fired != test.fires {
				t.Errorf("fired: %v, after %.0f min, %.0f min before; want %v", fired, o.Delay, o.False, test.fires)
			}
		})
	}
}

// judge checks our own alerts on one seed.
func judge(t *testing.T, kind noise, seed int, found map[string]map[string]outcome, whats []regression) {
	for _, alert := range []string{"CanarySlow", "CanarySlowForHours"} {
		if o := found[alert]["none"]; o.False > 0 || o.Last > 0 {
			t.Errorf("seed %d: %s fired %.0f minutes while all was well", seed, alert, o.False+60*o.Last)
		}
	}
	for _, what := range whats {
		deadline, ok := deadlines[what.name]
		if !ok || kind.wild && what.name == "+30 %" {
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

// record adds a row to the results for each noise and alert.
func record(t *testing.T, of [][]map[string]map[string]outcome, alerts []string, whats []regression, healthy int) {
	file, err := rows.Open(filepath.Join(testkit.Root(), "build", "results"), "detector",
		fmt.Sprintf("go test ./tests/detector -v -timeout 60m -args -full -seeds %d", *seeds))
	if err != nil {
		t.Fatal(err)
	}
	for n, results := range of {
		if results == nil { // not run, or failed
			continue
		}
		for _, alert := range alerts {
			cells := []string{"seeds", fmt.Sprint(*seeds)}
			for _, what := range whats[1:] {
				cells = append(cells, what.name, cell(results, alert, what))
			}
			cells = append(cells, "false minutes", fmt.Sprintf("%.0f in %d h", falseMinutes(results, alert), *seeds*healthy/60))
			file.Add("Detectors: regressions found of seeds, median delay, share of the sixth hour still firing", noises[n].name+": "+alert, cells...)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

// table is a row for each alert, a column for each regression.
func table(results []map[string]map[string]outcome, alerts []string, whats []regression) string {
	var b strings.Builder
	for _, alert := range alerts {
		fmt.Fprintf(&b, "  %-18s", alert)
		for _, what := range whats[1:] {
			fmt.Fprintf(&b, " | %s: %-18s", what.name, cell(results, alert, what))
		}
		fmt.Fprintf(&b, " | false: %.0f\n", falseMinutes(results, alert))
	}
	return b.String()
}

// cell returns for how many seeds an alert found a regression, after how long, and for which share of the last hour it
// fired.
func cell(results []map[string]map[string]outcome, alert string, what regression) string {
	var delays []float64
	last := 0.0
	for _, found := range results {
		o, fired := found[alert][what.name]
		last += o.Last
		if fired && !math.IsNaN(o.Delay) {
			delays = append(delays, o.Delay)
		}
	}
	text := fmt.Sprintf("%d/%d", len(delays), len(results))
	if len(delays) > 0 {
		slices.Sort(delays)
		text += fmt.Sprintf(" %3.0f min %3.0f %%", delays[len(delays)/2], 100*last/float64(len(results)))
	}
	return text
}

func falseMinutes(results []map[string]map[string]outcome, alert string) (wrong float64) {
	for _, found := range results {
		wrong += found[alert]["none"].False
	}
	return wrong
}
