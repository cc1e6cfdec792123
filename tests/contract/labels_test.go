package contract

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// carried is a set of labels that the series of an expression may have; nil is any: nothing is known of them.
type carried map[string]bool

func (c carried) has(name string) bool { return c == nil || c[name] }

// either is what series of one or the other may have.
func either(a, b carried) carried {
	if a == nil || b == nil {
		return nil
	}
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// alwaysCarried may be on any series: Prometheus, or what collects from several of them, adds them.
var alwaysCarried = []string{"cluster"}

// carriers has the labels of metrics and recorded series.
type carriers struct {
	metrics map[string]carried
	wrong   []string
}

// of returns the labels that an expression's results may have, and notes each label that a grouping or a join
// names and its operand cannot have.
func (c *carriers) of(node parser.Expr) carried {
	switch e := node.(type) {
	case *parser.VectorSelector:
		return c.selector(e)
	case *parser.MatrixSelector:
		return c.of(e.VectorSelector)
	case *parser.SubqueryExpr:
		return c.of(e.Expr)
	case *parser.ParenExpr:
		return c.of(e.Expr)
	case *parser.StepInvariantExpr:
		return c.of(e.Expr)
	case *parser.UnaryExpr:
		return c.of(e.Expr)
	case *parser.AggregateExpr:
		inner := c.of(e.Expr)
		if e.Without {
			return inner
		}
		c.need(fmt.Sprintf("%s by", e.Op), e.Grouping, inner, e.Expr)
		if e.Op == parser.TOPK || e.Op == parser.BOTTOMK {
			return inner
		}
		kept := carried{}
		for _, name := range e.Grouping {
			if inner.has(name) {
				kept[name] = true
			}
		}
		if e.Op == parser.COUNT_VALUES {
			kept[e.Param.(*parser.StringLiteral).Val] = true
		}
		return kept
	case *parser.Call:
		return c.call(e)
	case *parser.BinaryExpr:
		return c.binary(e)
	}
	return carried{}
}

func (c *carriers) selector(s *parser.VectorSelector) carried {
	for _, suffix := range []string{"", "_count", "_sum", "_bucket"} {
		if base, cut := strings.CutSuffix(s.Name, suffix); cut {
			labels, ok := c.metrics[base]
			if ok && suffix == "_bucket" {
				return either(labels, carried{"le": true})
			}
			if ok {
				return labels
			}
		}
	}
	return nil
}

func (c *carriers) call(e *parser.Call) carried {
	var inner carried = carried{}
	for _, a := range e.Args {
		if t := a.Type(); t == parser.ValueTypeVector || t == parser.ValueTypeMatrix {
			inner = c.of(a)
		}
	}
	if (e.Func.Name == "label_replace" || e.Func.Name == "label_join") && inner != nil {
		inner = maps.Clone(inner)
		inner[e.Args[1].(*parser.StringLiteral).Val] = true
	}
	return inner
}

func (c *carriers) binary(e *parser.BinaryExpr) carried {
	left, right := c.of(e.LHS), c.of(e.RHS)
	m := e.VectorMatching
	switch {
	case e.LHS.Type() == parser.ValueTypeScalar:
		return right
	case e.RHS.Type() == parser.ValueTypeScalar || m == nil:
		return left
	}
	if m.On {
		c.need(fmt.Sprintf("%s on", e.Op), m.MatchingLabels, left, e.LHS)
		c.need(fmt.Sprintf("%s on", e.Op), m.MatchingLabels, right, e.RHS)
	}
	switch {
	case e.Op == parser.LOR:
		return either(left, right)
	case e.Op == parser.LAND || e.Op == parser.LUNLESS:
		return left
	case m.Card == parser.CardManyToOne:
		c.need("group_left", m.Include, right, e.RHS)
		return plus(left, m.Include)
	case m.Card == parser.CardOneToMany:
		c.need("group_right", m.Include, left, e.LHS)
		return plus(right, m.Include)
	}
	return left
}

func plus(labels carried, names []string) carried {
	if labels == nil {
		return nil
	}
	labels = maps.Clone(labels)
	for _, name := range names {
		labels[name] = true
	}
	return labels
}

func (c *carriers) need(what string, names []string, have carried, of parser.Expr) {
	for _, name := range names {
		if !have.has(name) && !slices.Contains(alwaysCarried, name) {
			text := of.String()
			c.wrong = append(c.wrong, fmt.Sprintf("%s (%s): no series of %.120s has the label %s", what, strings.Join(names, ", "), text, name))
		}
	}
}

// learn finds the labels of recorded series, from rules that go by each other, until nothing is new.
func (c *carriers) learn(t *testing.T, rules []recording) {
	promql := parser.NewParser(parser.Options{})
	for _, r := range rules {
		c.metrics[r.name] = carried{}
	}
	for range 20 {
		before := 0
		for _, l := range c.metrics {
			before += len(l)
		}
		for _, r := range rules {
			expr, err := promql.ParseExpr(r.expr)
			if err != nil {
				t.Fatalf("%s: %v", r.name, err)
			}
			labels := either(c.metrics[r.name], c.of(expr))
			c.metrics[r.name] = plus(labels, r.labels)
		}
		after := 0
		for _, l := range c.metrics {
			after += len(l)
		}
		if after == before {
			break
		}
	}
	c.wrong = nil
}

// recording is a recording rule.
type recording struct {
	name, expr string
	labels     []string
}

func recordings(t *testing.T) (rules []recording) {
	for _, path := range ruletests.Files(t) {
		for _, r := range ruletests.Rules(t, path) {
			if r.Record != "" {
				rules = append(rules, recording{r.Record, r.Expr, slices.Collect(maps.Keys(r.Labels))})
			}
		}
	}
	return rules
}

// exposed returns what is known of metrics: the labels of our own, as they are defined, with those that targets have;
// and of what the fixture has, which is what Prometheus stored of a running system, just those that are seen there.
func exposed(t *testing.T, folder string) (c *carriers, seen map[string]carried) {
	t.Helper()
	c = &carriers{metrics: map[string]carried{}}
	for name, own := range exported(t) {
		if own == nil {
			continue
		}
		labels := carried{}
		for _, l := range slices.Concat(own, targetLabels) {
			labels[l] = true
		}
		c.metrics[name] = labels
	}
	text, err := os.ReadFile(filepath.Join("testdata", folder, "series.txt"))
	if err != nil {
		t.Fatal(err)
	}
	seen = map[string]carried{}
	promql := parser.NewParser(parser.Options{})
	for line := range strings.Lines(string(text)) {
		series, err := promql.ParseMetric(strings.TrimSpace(line))
		if err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, line)
		}
		name := series.Get(model.MetricNameLabel)
		if seen[name] == nil {
			seen[name] = carried{}
		}
		series.Range(func(l labels.Label) { seen[name][l.Name] = true })
	}
	for _, r := range reasons(t, folder) {
		if r.label == "" {
			continue
		}
		if seen[r.metric] == nil || seen[r.metric][r.label] {
			t.Errorf("%s/missing.txt: %s{%s} is not lacking", folder, r.metric, r.label)
			continue
		}
		seen[r.metric][r.label] = true
	}
	maps.Copy(c.metrics, seen)
	return c, seen
}

// has reports whether a fixture has a metric, of a histogram any part.
func has(seen map[string]carried, name string) bool {
	for _, suffix := range []string{"", "_count", "_sum", "_bucket"} {
		if base, cut := strings.CutSuffix(name, suffix); cut && seen[base] != nil {
			return true
		}
	}
	return false
}

// reason is why a fixture lacks what rules or dashboards select: metrics, by a pattern of their names, or
// METRIC{LABEL}.
type reason struct {
	pattern       *regexp.Regexp
	metric, label string
	used          bool
}

func reasons(t *testing.T, folder string) (all []*reason) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", folder, "missing.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		pattern, why, _ := strings.Cut(line, " ")
		if strings.TrimSpace(why) == "" {
			t.Errorf("%s/missing.txt: %s has no reason", folder, pattern)
		}
		if metric, label, ok := strings.Cut(pattern, "{"); ok {
			all = append(all, &reason{pattern: regexp.MustCompile("^$"), metric: metric, label: strings.TrimSuffix(label, "}"), used: true})
			continue
		}
		all = append(all, &reason{pattern: regexp.MustCompile("^(?:" + pattern + ")$")})
	}
	return all
}

// Each metric that rules and dashboards select is in both fixtures, or is listed with the reason why it is not; and
// what is listed is still selected and still missing. Those of storage backends' own exporters are in the tests of the
// backends' rules.
func TestFixturesHaveWhatIsQueried(t *testing.T) {
	expressions, recorded := collect(t)
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		expressions = append(expressions, expression{e.Where(), e.Fill(dashboards.Intervals{Rate: "1m", Range: "1h"}, nil)})
	}
	promql := parser.NewParser(parser.Options{})
	queried := map[string]bool{}
	for _, e := range expressions {
		if strings.HasSuffix(e.where, "_test.yaml") {
			continue // only the rules' tests feed it, no rule selects it
		}
		expr, err := promql.ParseExpr(e.text)
		if err != nil {
			t.Errorf("%s: %v", e.where, err)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				for _, one := range named(s) {
					if one.Name != "" && !strings.Contains(one.Name, ":") && !recorded[one.Name] && one.Name != "ALERTS" {
						queried[one.Name] = true
					}
				}
			}
			return nil
		})
	}
	if len(queried) < 100 {
		t.Fatalf("only %d metrics are queried; the test does not see the rules", len(queried))
	}
	backends := backendMetrics(t)
	for _, folder := range []string{"lab", "cluster"} {
		_, seen := exposed(t, folder)
		why := reasons(t, folder)
		n := 0
		for _, name := range slices.Sorted(maps.Keys(queried)) {
			if has(seen, name) {
				n++
				continue
			}
			if slices.Contains(backends, name) {
				continue
			}
			i := slices.IndexFunc(why, func(r *reason) bool { return r.pattern.MatchString(name) })
			if i < 0 {
				t.Errorf("%s/series.txt lacks %s, and missing.txt lacks the reason", folder, name)
				continue
			}
			why[i].used = true
		}
		for _, r := range why {
			if !r.used {
				t.Errorf("%s/missing.txt: nothing that is queried and lacking matches %s", folder, r.pattern)
			}
		}
		t.Logf("%s: of %d metrics that are queried %d are in the fixture", folder, len(queried), n)
	}
}

// legendLabel is a label in a panel's legend.
var legendLabel = regexp.MustCompile(`\{\{ *(\w+) *\}\}`)

// The labels that rules, queries and the lab's tables group and join by, and that legends show, are carried by the series:
// in the lab, on a cluster.
func TestLabelsAreCarried(t *testing.T) {
	rules := recordings(t)
	expressions, _ := collect(t)
	promql := parser.NewParser(parser.Options{})
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{"lab", "cluster"} {
		t.Run(folder, func(t *testing.T) {
			c, seen := exposed(t, folder)
			if len(seen) < 200 {
				t.Fatalf("testdata/%s has only %d metrics", folder, len(seen))
			}
			c.learn(t, rules)
			check := func(where, text string) carried {
				expr, err := promql.ParseExpr(text)
				if err != nil {
					t.Errorf("%s: %v", where, err)
					return nil
				}
				c.wrong = nil
				labels := c.of(expr)
				for _, w := range slices.Compact(c.wrong) {
					t.Errorf("%s: %s", where, w)
				}
				return labels
			}
			for _, e := range expressions {
				if !strings.HasSuffix(e.where, "_test.yaml") {
					check(e.where, e.text)
				}
			}
			for _, e := range all {
				labels := check(e.Where(), e.Fill(dashboards.Intervals{Rate: "1m", Range: "1h"}, nil))
				for _, m := range legendLabel.FindAllStringSubmatch(e.Legend, -1) {
					if !labels.has(m[1]) && !slices.Contains(alwaysCarried, m[1]) {
						t.Errorf("%s: the legend shows %s, which no series of it has: %.200s", e.Where(), m[1], e.Text)
					}
				}
			}
		})
	}
}

// The test itself finds what it is there to find.
func TestCarriersFindMistakes(t *testing.T) {
	for text, want := range map[string]string{
		`sum by (node, op) (rate(a_seconds[5m]))`:                "",
		`sum by (volume) (a_seconds)`:                            `label volume`,
		`a_seconds * on (node) group_left (volume) b_info`:       "",
		`a_seconds * on (volume) group_left () b_info`:           `a_seconds has the label volume`,
		`a_seconds * on (node) group_left (claim) b_info`:        `b_info has the label claim`,
		`sum by (x) (label_replace(a_seconds, "x", "", "", ""))`: "",
		`max by (node) (sum by (op) (a_seconds))`:                `label node`,
		`sum by (anything) (unknown)`:                            "",
		`sum by (cluster, node) (a_seconds_count)`:               "",
		`sum by (node, le) (a_seconds_bucket)`:                   "",
		`sum by (node, le) (a_seconds_sum)`:                      `label le`,
		`sum by (volume) (r:b:sum)`:                              "",
		`sum by (device) (r:b:sum)`:                              `label device`,
	} {
		c := &carriers{metrics: map[string]carried{"a_seconds": {"node": true, "op": true}, "b_info": {"node": true, "volume": true, "device": true}}}
		c.learn(t, []recording{{"r:b:sum", `sum by (volume) (b_info)`, nil}})
		expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		c.of(expr)
		got := strings.Join(c.wrong, "; ")
		if (want == "") != (got == "") || !regexp.MustCompile(regexp.QuoteMeta(want)).MatchString(got) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
