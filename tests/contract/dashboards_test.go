package contract

import (
	"path/filepath"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every metric that a dashboard's panel, variable or annotation names is exported, recorded
// or allowed, with the labels it is asked for.
func TestDashboardsNameWhatIsExported(t *testing.T) {
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	_, recorded := collect(t)
	names := exported(t)
	for name := range recorded {
		names[name] = nil
	}
	promql := parser.NewParser(parser.Options{})
	selectors := 0
	for _, e := range all {
		expr, err := promql.ParseExpr(e.Fill(dashboards.Intervals{Rate: "1m", Range: "1h"}, nil))
		if err != nil {
			t.Errorf("%s: %v\n%s", e.Where(), err, e.Text)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			for _, one := range named(s) {
				selectors++
				if err := names.check(one); err != nil {
					t.Errorf("%s: %v", e.Where(), err)
				}
			}
			return nil
		})
	}
	if selectors < 200 {
		t.Errorf("only %d selectors were found; the test does not see the dashboards", selectors)
	}
}

// named resolves a selector of several metrics, {__name__=~"a|b"}, into one of each.
func named(s *parser.VectorSelector) []*parser.VectorSelector {
	if s.Name != "" {
		return []*parser.VectorSelector{s}
	}
	var all []*parser.VectorSelector
	for _, m := range s.LabelMatchers {
		if m.Name != labels.MetricName || m.Type != labels.MatchRegexp {
			continue
		}
		for _, name := range m.SetMatches() {
			one := *s
			one.Name = name
			all = append(all, &one)
		}
	}
	if len(all) == 0 {
		return []*parser.VectorSelector{s}
	}
	return all
}
