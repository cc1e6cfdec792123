package contract

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/tests/ruletests"
)

// withoutCluster are the files of rules that leave the label cluster out, and why.
var withoutCluster = map[string]string{
	"backend-portworx.rules.yaml": "Portworx puts the name of its own cluster into that label",
}

// global are series of one Prometheus and not of a cluster, which others are compared with by `on ()`.
func global(name string) bool {
	return strings.HasPrefix(name, "budget:") || strings.HasPrefix(name, "threshold:")
}

// Every `by` and `on` of the rules has the label cluster: one Prometheus, Thanos or Mimir may have
// several clusters, whose nodes and restored volumes have the same names.
func TestClusterIsCarried(t *testing.T) {
	promql := parser.NewParser(parser.Options{})
	seen := 0
	for _, path := range ruletests.Files(t) {
		if withoutCluster[filepath.Base(path)] != "" {
			continue
		}
		for _, r := range ruletests.Rules(t, path) {
			expr, err := promql.ParseExpr(r.Expr)
			if err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
				continue
			}
			n, wrong := merged(expr)
			seen += n
			for _, text := range wrong {
				t.Errorf("%s %s%s: %s leaves the label cluster out", filepath.Base(path), r.Record, r.Alert, text)
			}
		}
	}
	if seen < 500 {
		t.Errorf("only %d groupings were found; the test does not see the rules", seen)
	}
}

// merged counts an expression's groupings and joins, and returns those that do not keep clusters apart.
func merged(expr parser.Expr) (n int, wrong []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch e := node.(type) {
		case *parser.AggregateExpr:
			n++
			if slices.Contains(e.Grouping, "cluster") == e.Without && !onlyGlobal(e.Expr) {
				wrong = append(wrong, fmt.Sprintf("%s by (%s)", e.Op, strings.Join(e.Grouping, ", ")))
			}
		case *parser.BinaryExpr:
			m := e.VectorMatching
			if m == nil || !m.On && !slices.Contains(m.MatchingLabels, "cluster") {
				return nil
			}
			n++
			budget := len(m.MatchingLabels) == 0 && onlyGlobal(e.RHS)
			if m.On && !slices.Contains(m.MatchingLabels, "cluster") && !budget || !m.On {
				wrong = append(wrong, fmt.Sprintf("%s on (%s)", e.Op, strings.Join(m.MatchingLabels, ", ")))
			}
		}
		return nil
	})
	return n, wrong
}

func onlyGlobal(expr parser.Expr) bool {
	found, all := false, true
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		if s, ok := node.(*parser.VectorSelector); ok {
			found, all = true, all && global(s.Name)
		}
		return nil
	})
	return found && all
}

func TestMergedFindsMistakes(t *testing.T) {
	for text, want := range map[string]int{
		`sum by (cluster, node) (x)`: 0, `sum by (node) (x)`: 1, `sum(x)`: 1, `sum without (job) (x)`: 0, `sum without (cluster) (x)`: 1,
		`x * on (cluster, node) group_left () y`: 0, `x * on (node) group_left () y`: 1, `x * y`: 0, `x / ignoring (op) y`: 0, `x / ignoring (cluster) y`: 1,
		`x > 2 * scalar(min(budget:stall_seconds:max))`: 0, `x > scalar(min(y))`: 1, `x > on () group_left () 2 * budget:stall_seconds:max`: 0, `x > on () group_left () y`: 1, `x > 1`: 0, `x unless on (volume) sum by (volume) (y)`: 2,
	} {
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, wrong := merged(expr); len(wrong) != want {
			t.Errorf("%s: %v, want %d", text, wrong, want)
		}
	}
}

// double gives the test's series a cluster and has them a second time in another. Queries are for the first, alerts are
// expected of both. It leaves a test that has clusters of its own as it is, and returns false.
func (p *promtoolTest) double(t *testing.T) bool {
	t.Helper()
	var input []promtoolSeries
	for _, s := range p.Input {
		name := s.Series
		if strings.Contains(name, "cluster=") {
			return false
		}
		for _, cluster := range []string{"one", "two"} {
			if global(name) && cluster == "one" {
				input = append(input, s)
			} else if !global(name) {
				input = append(input, promtoolSeries{labelled(name, cluster), s.Values})
			}
		}
	}
	p.Input = input
	for i, a := range p.Alerts {
		p.Alerts[i].Expected = nil
		for _, cluster := range []string{"one", "two"} {
			for _, one := range a.Expected {
				l := maps.Clone(one.Labels)
				l["cluster"] = cluster
				p.Alerts[i].Expected = append(p.Alerts[i].Expected, promtoolFiring{l, one.Rest})
			}
		}
	}
	promql := parser.NewParser(parser.Options{})
	for i := range p.Exprs {
		expr, err := promql.ParseExpr(p.Exprs[i].Expr)
		if err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok && !global(s.Name) {
				s.LabelMatchers = append(s.LabelMatchers, labels.MustNewMatcher(labels.MatchEqual, "cluster", "one"))
			}
			return nil
		})
		// The expected samples have no cluster.
		p.Exprs[i].Expr = `label_replace(` + expr.String() + `, "cluster", "", "", "")`
	}
	return true
}

// labelled adds the label cluster to a series.
func labelled(series, cluster string) string {
	name, rest, ok := strings.Cut(series, "{")
	if !ok {
		return fmt.Sprintf("%s{cluster=%q}", series, cluster)
	}
	return fmt.Sprintf("%s{cluster=%q,%s", name, cluster, rest)
}
