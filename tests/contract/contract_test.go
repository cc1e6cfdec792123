// Package contract checks what no single part can: that every metric a rule, a rule's test or a table names is
// exported, with the labels it is selected by.
package contract

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/manifests/lab/table"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/metricsdoc"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// expression is one PromQL expression and where it is.
type expression struct{ where, text string }

// known is what may be selected: metric name to its own labels, nil if those are not known.
type known map[string][]string

// targetLabels are put on by Prometheus, whatever the exporter.
var targetLabels = []string{"instance", "job", "namespace", "pod", "container", "endpoint", "node", "cluster", "server", "storageclass", "le", "prometheus_replica", "__name__"}

func TestEveryMetricIsExported(t *testing.T) {
	expressions, recorded := collect(t)
	if len(expressions) < 50 {
		t.Fatalf("only %d expressions were found; the test does not see the rules", len(expressions))
	}
	names := exported(t)
	for name := range recorded {
		names[name] = nil
	}
	promql := parser.NewParser(parser.Options{})
	for _, e := range expressions {
		expr, err := promql.ParseExpr(e.text)
		if err != nil {
			t.Errorf("%s: %v\n%s", e.where, err, e.text)
			continue
		}
		parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				if err := names.check(s); err != nil {
					t.Errorf("%s: %v", e.where, err)
				}
			}
			return nil
		})
	}
}

// check returns an error unless a selector's metric and labels exist.
func (k known) check(s *parser.VectorSelector) error {
	own, ok := k.find(s.Name)
	if !ok {
		return fmt.Errorf("nothing exports %q", s.Name)
	}
	if own == nil {
		return nil
	}
	for _, m := range s.LabelMatchers {
		// A label that must be empty may be missing.
		absent := m.Type == labels.MatchEqual && m.Value == ""
		// Prometheus renames a label that the target has, too.
		name := strings.TrimPrefix(m.Name, "exported_")
		if name != m.Name && !slices.Contains(targetLabels, name) {
			name = m.Name
		}
		if !absent && !slices.Contains(own, name) && !slices.Contains(targetLabels, m.Name) {
			return fmt.Errorf("%s has no label %q; it has %s", s.Name, m.Name, strings.Join(own, ", "))
		}
	}
	return nil
}

// find looks a metric up by its name, or by that of the histogram it is a part of.
func (k known) find(name string) ([]string, bool) {
	for _, suffix := range []string{"", "_count", "_sum", "_bucket"} {
		if base, cut := strings.CutSuffix(name, suffix); cut {
			if own, ok := k[base]; ok {
				return own, true
			}
		}
	}
	return nil, false
}

// exported lists our own metrics, from their definitions, and those of others that we allow: those of third-party.txt,
// and those of the exporters that storage backends bring along, which are in the tests of the backends' rules.
func exported(t *testing.T) known {
	t.Helper()
	names := known{}
	own, err := metricsdoc.Scan(testkit.Root(), "exporters", "loadgen")
	if err != nil {
		t.Fatal(err)
	}
	for name, m := range own {
		names[name] = m.Labels
	}
	file, err := os.Open("third-party.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 0 && fields[0] != "#" {
			names[fields[0]] = nil
		}
	}
	for _, name := range backendMetrics(t) {
		names[name] = nil
	}
	return names
}

// backendMetrics returns the metrics of the exporters that storage backends bring along.
func backendMetrics(t *testing.T) (names []string) {
	t.Helper()
	for _, path := range ruletests.Tests(t) {
		if !strings.HasPrefix(filepath.Base(path), "backend-") {
			continue
		}
		var content unitTests
		ruletests.Read(t, path, &content)
		for _, test := range content.Tests {
			for _, i := range test.Input {
				if name, _, _ := strings.Cut(i.Series, "{"); foreign(name) {
					names = append(names, name)
				}
			}
		}
	}
	return names
}

// foreign reports whether a metric is neither ours nor recorded by a rule.
func foreign(name string) bool {
	return !strings.Contains(name, ":") && !strings.HasPrefix(name, "plumbline_") && !strings.HasPrefix(name, "loadgen_")
}

// collect gathers every expression of the project, and the names that rules record.
func collect(t *testing.T) (expressions []expression, recorded map[string]bool) {
	t.Helper()
	recorded = map[string]bool{}
	for _, path := range ruletests.Files(t) {
		for _, r := range ruletests.Rules(t, path) {
			expressions = append(expressions, expression{filepath.Base(path) + " " + r.Record + r.Alert, r.Expr})
			if r.Record != "" {
				recorded[r.Record] = true
			}
		}
	}
	for _, path := range ruletests.Tests(t) {
		var content unitTests
		ruletests.Read(t, path, &content)
		for _, test := range content.Tests {
			for _, i := range test.Input {
				expressions = append(expressions, expression{filepath.Base(path), i.Series})
			}
			for _, e := range test.Exprs {
				expressions = append(expressions, expression{filepath.Base(path), e.Expr})
			}
		}
	}
	for _, query := range why.Queries() {
		expressions = append(expressions, expression{"rules/why", query})
	}
	for _, query := range input.Queries() {
		expressions = append(expressions, expression{"loadgen/predict/input", query})
	}
	spec, err := table.ReadSpec(filepath.Join(testkit.Root(), "manifests", "lab", "table.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	window := func(expr string) string { return strings.ReplaceAll(expr, "$window", "1m") }
	expressions = append(expressions, expression{"table.yaml steady", window(spec.Steady)})
	for _, one := range spec.Tables {
		for _, c := range one.Columns {
			expressions = append(expressions, expression{"table.yaml " + c.Group + " " + c.Title, window(c.Expr)})
		}
	}
	return expressions, recorded
}

// The test itself finds what it is there to find.
func TestCheckFindsMistakes(t *testing.T) {
	k := known{"a_seconds": {"op"}, "b_total": nil}
	for name, want := range map[string]bool{"px_volume_writes": true, "plumbline_volume_inf": false, "loadgen_up": false, "volume:write_seconds:mean5m": false} {
		if foreign(name) != want {
			t.Errorf("%s: foreign %v, want %v", name, !want, want)
		}
	}
	promql := parser.NewParser(parser.Options{})
	for text, ok := range map[string]bool{
		`a_seconds{op="read"}`:      true,
		`a_seconds_count{node="n"}`: true,
		`a_seconds{device=""}`:      true,
		`a_seconds{device="vda"}`:   false,
		`a_second{op="read"}`:       false,
		`b_total{whatever="it is"}`: true,
	} {
		expr, err := promql.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		if err := k.check(expr.(*parser.VectorSelector)); (err == nil) != ok {
			t.Errorf("%s: %v", text, err)
		}
	}
}
