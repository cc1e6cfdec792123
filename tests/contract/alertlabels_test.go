package contract

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/tests/ruletests"
)

// details are labels that may have several values within one incident, or change while it lasts: an alert with one of
// them is several alerts for one cause. They belong into annotations.
var details = []string{"phase", "op", "le", "quantile", "load", "size", "command", "purpose", "mode", "state", "cache", "window", "within",
	"layer", "suspect", "program", "seen", "reason", "pod", "container", "endpoint", "address", "port", "version", "model", "directory"}

// allowed are alerts for which each value of a label is an incident of its own, or whose purpose is to report it.
var allowed = map[string]string{
	"StallLocated layer":     "it is there to report the layer, and requires no action",
	"ReplicaStuck address":   "a replica has one, and some have no other name",
	"BlockLatencyShifted op": "reads and writes are slow for reasons of their own",
	"ClockTrouble pod":       "node_exporter's own, of which there is one on a node",
	"ClockTrouble container": "node_exporter's own",
	"ClockTrouble endpoint":  "node_exporter's own",
}

// One incident is one alert: the labels of alerts are those of what is ill, none of its details.
func TestAlertsHaveNoDetailsInLabels(t *testing.T) {
	used := map[string]bool{}
	n := 0
	for _, folder := range []string{"lab", "cluster"} {
		c, _ := exposed(t, folder)
		c.learn(t, recordings(t))
		for _, path := range ruletests.Files(t) {
			for _, r := range ruletests.Rules(t, path) {
				if r.Alert == "" {
					continue
				}
				expr, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr)
				if err != nil {
					t.Errorf("%s: %v", r.Alert, err)
					continue
				}
				n++
				labels := c.of(expr)
				if labels == nil {
					t.Errorf("%s %s: nothing is known of its labels: name them by an aggregation", filepath.Base(path), r.Alert)
				}
				for _, name := range details {
					if labels == nil || !labels.has(name) {
						continue
					}
					if key := r.Alert + " " + name; allowed[key] != "" {
						used[key] = true
						continue
					}
					t.Errorf("%s %s has the label %s: there is an alert for each of its values", filepath.Base(path), r.Alert, name)
				}
			}
		}
	}
	if n < 80 {
		t.Errorf("only %d alerts were seen", n)
	}
	for key := range allowed {
		if !used[key] {
			alert, name, _ := strings.Cut(key, " ")
			t.Errorf("%s has no label %s; allow it no more", alert, name)
		}
	}
}
