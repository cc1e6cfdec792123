package scenario

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/rules/ruler"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The rules for either kind record of native histograms what the written ones do; these, and those for classic ones,
// the same of classic ones, save for quantiles, which are as exact as the classic bounds.
func TestHistogramsOfAnyKind(t *testing.T) {
	testkit.Long(t, "evaluates all rules over a scenario")
	for _, c := range []struct {
		name  string
		kind  histograms.Kind
		keep  keeper
		exact bool
	}{
		{"either, native", histograms.Either, keep, true},
		{"either, classic", histograms.Either, addClassic, false},
		{"classic", histograms.Classic, addClassic, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := Load("slow-replica")
			if err != nil {
				t.Fatal(err)
			}
			all, err := rules.For(c.kind)
			if err != nil {
				t.Fatal(err)
			}
			after, err := s.record(t.Context(), testkit.Root(), ruler.NewEngine(), all, c.keep)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, memory(t, "slow-replica"), after, c.exact)
		})
	}
}

// compare fails unless all numbers that were recorded before are recorded again, at the scenario's end.
func compare(t *testing.T, before, after *ruler.Memory, exact bool) {
	t.Helper()
	numbers, alerts, quantiles := 0, 0, 0
	for key, one := range before.All() {
		name := one.Metric.Get(model.MetricNameLabel)
		if one.Stale || len(one.Floats) == 0 || !strings.Contains(name, ":") && name != "ALERTS" {
			continue
		}
		want := one.Floats[len(one.Floats)-1].F
		other := after.All()[key]
		if name == "ALERTS" {
			alerts++
		}
		if other == nil || other.Stale {
			if !ofQuantile(name) {
				t.Errorf("not recorded: %s", key)
			}
			continue
		}
		numbers++
		got := other.Floats[len(other.Floats)-1].F
		switch {
		case got == want || math.IsNaN(got) && math.IsNaN(want) || math.Abs(got/want-1) < 1e-9:
		case !exact && ofQuantile(name):
			quantiles++
			if math.Abs(math.Log(got/want)) > math.Log(1.3) {
				t.Errorf("%s is %g, was %g: no quantile of these bounds", key, got, want)
			}
		default:
			t.Errorf("%s is %g, was %g", key, got, want)
		}
	}
	for key, one := range after.All() {
		name := one.Metric.Get(model.MetricNameLabel)
		part := slices.ContainsFunc([]string{"_bucket", "_sum", "_count"}, func(end string) bool { return strings.HasSuffix(name, end) })
		if !one.Stale && len(one.Floats) > 0 && strings.Contains(name, ":") && !part && (before.All()[key] == nil || before.All()[key].Stale) && !ofQuantile(name) {
			t.Errorf("recorded only now: %s", key)
		}
	}
	t.Logf("%d numbers, %d of them by other quantiles, %d alerts", numbers, quantiles, alerts)
	if numbers < 600 || alerts == 0 {
		t.Error("too little was compared")
	}
}

// ofQuantile reports whether a record is a quantile, or made of one.
func ofQuantile(name string) bool {
	return slices.ContainsFunc([]string{"p25", "p50", "p95", "p99", "loadgen:slow", "loadgen:faster", "node:control_slowdown", "growth_seconds"}, func(part string) bool { return strings.Contains(name, part) })
}
