package chart

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/metricsdoc"
	"github.com/plumbline/plumbline/tests/testkit"
)

// example is what the values' example of metricRelabelings drops.
func example(t *testing.T) []*relabel.Config {
	t.Helper()
	m := regexp.MustCompile(`((?m:^  #.*\n)+)  metricRelabelings: \[\]\n`).FindStringSubmatch(read(t, filepath.Join(checkout, "values.yaml")))
	if m == nil {
		t.Fatal("values.yaml has no comment above metricRelabelings")
	}
	var text strings.Builder
	for line := range strings.Lines(m[1]) {
		if code, ok := strings.CutPrefix(line, "  #   "); ok {
			text.WriteString(code)
		}
	}
	var entries []struct {
		Action       relabel.Action
		SourceLabels model.LabelNames
		Regex        string
	}
	if err := yaml.UnmarshalStrict([]byte(text.String()), &entries); err != nil || len(entries) == 0 {
		t.Fatalf("the example has %d relabelings: %v", len(entries), err)
	}
	var configs []*relabel.Config
	for _, e := range entries {
		c := relabel.DefaultRelabelConfig
		c.Action, c.SourceLabels, c.NameValidationScheme = e.Action, e.SourceLabels, model.UTF8Validation
		var err error
		if c.Regex, err = relabel.NewRegexp(e.Regex); err != nil {
			t.Fatal(err)
		}
		configs = append(configs, &c)
	}
	return configs
}

// TestExampleDropsNothingRead checks that no rule, panel or command reads what the values' example of metricRelabelings
// drops.
func TestExampleDropsNothingRead(t *testing.T) {
	configs := example(t)
	dropped := func(name string) bool {
		return !relabel.ProcessBuilder(labels.NewBuilder(labels.FromStrings(model.MetricNameLabel, name)), configs...)
	}
	metrics, err := metricsdoc.Scan(testkit.Root(), "exporters", "loadgen")
	if err != nil {
		t.Fatal(err)
	}
	var ours []string
	for name := range metrics {
		if dropped(name) {
			ours = append(ours, name)
		}
	}
	if len(ours) < 15 || !dropped("go_goroutines") || !dropped("ebpf_exporter_build_info") {
		t.Errorf("it drops %d of Plumbline's metrics, want 15 at least: %q", len(ours), ours)
	}
	for _, name := range []string{"plumbline_query_duration_seconds", "ebpf_exporter_blkio_total_seconds_bucket", "loadgen_response_seconds", "process_cpu_seconds_total", "up"} {
		if dropped(name) {
			t.Errorf("it drops %s", name)
		}
	}
	selectors := 0
	check := func(where, expr string) {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			// A metric is read that all matchers of its name select.
			names := []string{s.Name}
			if s.Name == "" {
				names = ours
			}
			var ofName []*labels.Matcher
			for _, m := range s.LabelMatchers {
				if m.Name == model.MetricNameLabel {
					ofName = append(ofName, m)
				}
			}
			if len(ofName) == 0 {
				return nil
			}
			selectors++
			for _, name := range names {
				if dropped(name) && !slices.ContainsFunc(ofName, func(m *labels.Matcher) bool { return !m.Matches(name) }) {
					t.Errorf("%s reads %s, and the example drops %s", where, s, name)
				}
			}
			return nil
		})
	}
	for _, kind := range []histograms.Kind{"", histograms.Either, histograms.Classic} {
		all, err := rules.For(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range all {
			check("rule "+r.Record+r.Alert, r.Expr)
		}
	}
	pages, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range pages {
		check(one.Where(), one.Fill(dashboards.Intervals{Rate: "1m", Range: "5m"}, nil))
	}
	for _, q := range slices.Concat(why.Queries(), input.Queries()) {
		check("kubectl plumbline", q)
	}
	if selectors < 1000 {
		t.Errorf("only %d selectors were seen", selectors)
	}
}
