package unread_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/loadgen/predict/ask"
	"github.com/plumbline/plumbline/manifests/unread"
	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/testkit"
)

// No rule, panel or command reads what is dropped.
func TestNothingReadIsDropped(t *testing.T) {
	pattern, err := unread.Pattern(testkit.Root())
	if err != nil {
		t.Fatal(err)
	}
	names, err := unread.Names(testkit.Root())
	if err != nil || len(names) < 20 {
		t.Errorf("only %d metrics are read by nothing: %v", len(names), err)
	}
	// As relabelling does: whole names.
	dropped := regexp.MustCompile("^(?:" + pattern + ")$")
	selectors := 0
	check := func(where, expr string) {
		e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
		if err != nil {
			t.Fatalf("%s: %v", where, err)
		}
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				// A metric is read that all matchers of its name select.
				var ofName []*labels.Matcher
				equal := ""
				for _, m := range s.LabelMatchers {
					if m.Name == labels.MetricName {
						selectors++
						ofName = append(ofName, m)
						if m.Type == labels.MatchEqual {
							equal = m.Value
						}
					}
				}
				selects := func(name string) bool {
					return !slices.ContainsFunc(ofName, func(m *labels.Matcher) bool { return !m.Matches(name) })
				}
				if equal != "" && dropped.MatchString(equal) || equal == "" && len(ofName) > 0 && slices.ContainsFunc(names, selects) {
					t.Errorf("%s reads %s", where, s)
				}
			}
			return nil
		})
	}
	kinds := [][]rules.Rule{all(t)(rules.All()), all(t)(rules.For(histograms.Either)), all(t)(rules.For(histograms.Classic))}
	for _, kind := range kinds {
		for _, r := range kind {
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
	for _, q := range why.Queries() {
		check("kubectl plumbline", q)
	}
	for _, q := range ask.Queries() {
		check("kubectl plumbline predict", q)
	}
	if selectors < 1000 {
		t.Errorf("only %d selectors were seen", selectors)
	}
	for _, name := range []string{"plumbline_query_duration_seconds", "ebpf_exporter_blkio_total_seconds_bucket", "loadgen_response_seconds", "process_cpu_seconds_total", "up"} {
		if dropped.MatchString(name) {
			t.Errorf("%s is dropped", name)
		}
	}
}

func all(t *testing.T) func([]rules.Rule, error) []rules.Rule {
	return func(r []rules.Rule, err error) []rules.Rule {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
}

// What is checked in is what the generator makes.
func TestCurrent(t *testing.T) {
	out := t.TempDir()
	cmd := exec.Command("go", "run", "./manifests/unread/generate", "-root", ".", "-out", out)
	cmd.Dir = testkit.Root()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	files := 0
	for _, path := range []string{"kubernetes/optional/drop-unread/kustomization.yaml", "chart/templates/_unread.tpl"} {
		made, err := os.ReadFile(filepath.Join(out, path))
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", path))
		if err != nil || string(is) != string(made) {
			t.Errorf("manifests/%s is not current (%v); run go generate ./manifests/unread", path, err)
		}
		files += strings.Count(string(is), "go_.*|")
	}
	if files != 2 {
		t.Errorf("the pattern is in %d files, want 2", files)
	}
}
