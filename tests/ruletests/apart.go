package ruletests

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

// series are the series of a rule or of a test's input, by the labels that are known of them.
type series struct {
	known map[string]string
	all   bool // the labels: there are no others
}

// match reports whether a selector may select the series.
func (s series) match(v *parser.VectorSelector) bool {
	return !slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
		value, known := s.known[m.Name]
		return (known || s.all) && !m.Matches(value)
	})
}

// rule is a rule as it is written, its group, and what it makes.
type rule struct {
	written any
	group   int
	expr    parser.Expr
	made    []series
}

var promql = parser.NewParser(parser.Options{})

// Apart writes a file of promtool's tests, whose rule files have absolute paths, as one file for each test, and returns
// their paths. Each test has only the rules that can have a result with its series; the others, which are most, have
// none at any time.
func Apart(t *testing.T, name string, doc any) (paths []string) {
	t.Helper()
	type group struct {
		Name  string         `yaml:"name"`
		Rules []any          `yaml:"rules"`
		Rest  map[string]any `yaml:",inline"`
	}
	var file struct {
		RuleFiles []string       `yaml:"rule_files"`
		Tests     []any          `yaml:"tests"`
		Rest      map[string]any `yaml:",inline"`
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	write := func(path string, content any) {
		t.Helper()
		var text bytes.Buffer
		encoder := yaml.NewEncoder(&text)
		encoder.SetIndent(2) // four, as is usual, breaks a text that begins with spaces
		check(encoder.Encode(content))
		check(os.WriteFile(path, text.Bytes(), 0o600))
	}
	check(convert(doc, &file))
	var groups []group
	var rules []rule
	for _, path := range file.RuleFiles {
		var content struct{ Groups []group }
		Read(t, path, &content)
		for _, g := range content.Groups {
			for _, written := range g.Rules {
				r, err := read(written)
				check(err)
				r.group = len(groups)
				rules = append(rules, r)
			}
			groups = append(groups, g)
		}
	}
	dir, tests := t.TempDir(), file.Tests
	for i, test := range tests {
		input, err := inputOf(test)
		check(err)
		for j := range groups {
			groups[j].Rules = nil
		}
		for _, r := range possible(rules, input) {
			groups[r.group].Rules = append(groups[r.group].Rules, r.written)
		}
		path := filepath.Join(dir, fmt.Sprintf("%02d-%s", i, name))
		file.RuleFiles, file.Tests = []string{path + ".rules"}, []any{test}
		write(file.RuleFiles[0], map[string]any{"groups": groups})
		write(path, file)
		paths = append(paths, path)
	}
	return paths
}

// convert makes a value of another type of what YAML has of one.
func convert(from, to any) error {
	text, err := yaml.Marshal(from)
	if err != nil {
		return err
	}
	return yaml.Unmarshal(text, to)
}

// read reads a rule.
func read(written any) (rule, error) {
	var r Rule
	if err := convert(written, &r); err != nil {
		return rule{}, err
	}
	expr, err := promql.ParseExpr(r.Expr)
	if err != nil {
		return rule{}, fmt.Errorf("%s%s: %w", r.Record, r.Alert, err)
	}
	if r.Alert == "" {
		known := map[string]string{model.MetricNameLabel: r.Record}
		maps.Copy(known, r.Labels)
		return rule{written: written, expr: expr, made: []series{{known: known}}}, nil
	}
	// An alert's other labels may be templates.
	var made []series
	for _, name := range []string{"ALERTS", "ALERTS_FOR_STATE"} {
		made = append(made, series{known: map[string]string{model.MetricNameLabel: name, labels.AlertName: r.Alert}})
	}
	return rule{written: written, expr: expr, made: made}, nil
}

// inputOf returns the series that a test gives.
func inputOf(written any) (input []series, err error) {
	var test struct {
		Input []struct{ Series string } `yaml:"input_series"`
	}
	if err := convert(written, &test); err != nil {
		return nil, err
	}
	for _, in := range test.Input {
		metric, err := promql.ParseMetric(in.Series)
		if err != nil {
			return nil, err
		}
		input = append(input, series{metric.Map(), true})
	}
	return input, nil
}

// possible returns the rules that can have a result, in their order: by the series that are there, and by what the
// rules make of them, each in one evaluation or a later one.
func possible(rules []rule, there []series) (can []rule) {
	kept := make([]bool, len(rules))
	for n := -1; n != len(there); {
		n = len(there)
		for i, r := range rules {
			if !kept[i] && !empty(r.expr, there) {
				kept[i], there = true, append(there, r.made...)
			}
		}
	}
	for i, r := range rules {
		if kept[i] {
			can = append(can, r)
		}
	}
	return can
}

// empty reports whether an expression has no result at any time if no other series are there.
func empty(e parser.Expr, there []series) bool {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return !slices.ContainsFunc(there, func(s series) bool { return s.match(e) })
	case *parser.MatrixSelector:
		return empty(e.VectorSelector, there)
	case *parser.SubqueryExpr:
		return empty(e.Expr, there)
	case *parser.ParenExpr:
		return empty(e.Expr, there)
	case *parser.UnaryExpr:
		return empty(e.Expr, there)
	case *parser.AggregateExpr:
		return empty(e.Expr, there)
	case *parser.BinaryExpr:
		switch e.Op {
		case parser.LOR:
			return empty(e.LHS, there) && empty(e.RHS, there)
		case parser.LUNLESS:
			return empty(e.LHS, there)
		}
		return empty(e.LHS, there) || empty(e.RHS, there)
	case *parser.Call:
		if slices.Contains([]string{"absent", "absent_over_time", "scalar"}, e.Func.Name) {
			return false
		}
		return slices.ContainsFunc(e.Args, func(a parser.Expr) bool { return empty(a, there) })
	}
	return false
}
