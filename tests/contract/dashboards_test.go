package contract

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every metric that a dashboard's panel, variable or annotation names is exported, recorded or allowed, with the labels
// it is selected by.
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
			if a, ok := n.(*parser.AggregateExpr); ok {
				if err := names.checkGrouping(a); err != nil {
					t.Errorf("%s: %v", e.Where(), err)
				}
			}
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

// checkGrouping returns an error unless a metric's series have the labels that they are grouped by.
func (k known) checkGrouping(a *parser.AggregateExpr) error {
	var only *parser.VectorSelector
	several := a.Without
	parser.Inspect(a.Expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			several = several || only != nil
			only = n
		case *parser.BinaryExpr:
			several = several || n.VectorMatching != nil
		case *parser.Call:
			several = several || n.Func.Name == "label_replace" || n.Func.Name == "label_join"
		}
		return nil
	})
	if several || only == nil || only.Name == "" {
		return nil
	}
	own, _ := k.find(only.Name)
	for _, label := range a.Grouping {
		if own != nil && !slices.Contains(own, label) && !slices.Contains(targetLabels, label) {
			return fmt.Errorf("%s is grouped by %q, which it does not have; it has %s", only.Name, label, strings.Join(own, ", "))
		}
	}
	return nil
}

// named resolves a selector of several metrics, {__name__=~"a|b"}, into one of each.
func named(s *parser.VectorSelector) []*parser.VectorSelector {
	if s.Name != "" {
		return []*parser.VectorSelector{s}
	}
	var all []*parser.VectorSelector
	for _, m := range s.LabelMatchers {
		if m.Name != model.MetricNameLabel || m.Type != labels.MatchRegexp {
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
