package detector

import (
	"flag"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

var (
	full  = flag.Bool("full", false, "every regression and the alerts of others, a healthy day before each; takes minutes")
	seeds = flag.Int("seeds", 1, "seeds of each kind of noise")
)

// The alerts, on every kind of noise: none is false, +30 % and +100 % are found in time and not
// forgotten. With -full it prints the table of all steps, beside that of published detectors.
func TestDetectors(t *testing.T) {
	promtool := testkit.Tool(t, "promtool")
	rules := []string{filepath.Join(testkit.Root(), "rules", "canary.rules.yaml")}
	healthy, after, whats := 6*60, 3*60, []regression{regressions[0], regressions[2], regressions[4]}
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
	dir := t.TempDir()
	type key struct {
		noise string
		seed  int
	}
	results := map[key]map[string]map[string]outcome{}
	var mu sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, 2)
	for _, kind := range noises {
		for seed := 1; seed <= *seeds; seed++ {
			running.Go(func() {
				slots <- struct{}{}
				defer func() { <-slots }()
				found, err := run(promtool, dir, rules, kind, uint64(seed), healthy, after, whats)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Errorf("%s, seed %d: %v", kind.name, seed, err)
				}
				results[key{kind.name, seed}] = found
			})
		}
	}
	running.Wait()
	if t.Failed() {
		return
	}

	var table strings.Builder
	fmt.Fprintf(&table, "%-19s %-11s", "alert", "noise")
	for _, what := range whats[1:] {
		fmt.Fprintf(&table, " | %-18s", what.name)
	}
	fmt.Fprintf(&table, " | false min in %d h\n", healthy/60**seeds)
	for _, alert := range alerts {
		for _, kind := range noises {
			fmt.Fprintf(&table, "%-19s %-11s", alert, kind.name)
			wrong := 0.0
			for _, what := range whats {
				var delays, last []float64
				for seed := 1; seed <= *seeds; seed++ {
					o, fired := results[key{kind.name, seed}][alert][what.name]
					if what.name == "none" {
						wrong += o.False
						if fired && !math.IsNaN(o.Delay) {
							wrong += o.Last * 60 // it fired after the healthy part of a series that stays healthy
						}
						continue
					}
					last = append(last, o.Last)
					if fired && !math.IsNaN(o.Delay) {
						delays = append(delays, o.Delay)
					}
				}
				if what.name == "none" {
					continue
				}
				cell := fmt.Sprintf("%d/%d", len(delays), *seeds)
				if len(delays) > 0 {
					cell += fmt.Sprintf(" %3.0f min %3.0f %%", median(delays), 100*mean(last))
				}
				fmt.Fprintf(&table, " | %-18s", cell)
			}
			fmt.Fprintf(&table, " | %.0f\n", wrong)
		}
	}
	t.Logf("seeds detected, median minutes to the first firing, share of the last hour still firing\n%s", table.String())

	for _, kind := range noises {
		for seed := 1; seed <= *seeds; seed++ {
			found := results[key{kind.name, seed}]
			for _, alert := range alerts[:2] {
				if o := found[alert]["none"]; o.False > 0 || o.Last > 0 {
					t.Errorf("%s fired %.0f minutes on healthy %s noise, seed %d", alert, o.False+60*o.Last, kind.name, seed)
				}
			}
			for what, deadline := range map[string]float64{"+30 %": 45, "+60 %": 20, "+100 %": 10} {
				if !slices.ContainsFunc(whats, func(w regression) bool { return w.name == what }) {
					continue
				}
				o, fired := found["CanarySlow"][what]
				if !fired || math.IsNaN(o.Delay) || o.Delay > deadline {
					t.Errorf("%s noise, seed %d: %s was found after %v minutes (fired: %v); want %v", kind.name, seed, what, o.Delay, fired, deadline)
				}
				if o.Last < 0.5 {
					t.Errorf("%s noise, seed %d: %s is forgotten: it fires in %.0f %% of the last hour", kind.name, seed, what, 100*o.Last)
				}
			}
		}
	}
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func mean(v []float64) float64 {
	sum := 0.0
	for _, x := range v {
		sum += x
	}
	return sum / float64(len(v))
}
