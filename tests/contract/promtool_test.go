package contract

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// unitTests is a file of promtool's tests of rules, as far as the tests here change one.
type unitTests struct {
	RuleFiles  []string       `yaml:"rule_files"`
	GroupOrder []string       `yaml:"group_eval_order"`
	Tests      []promtoolTest `yaml:"tests"`
	Rest       map[string]any `yaml:",inline"`
}

// promtoolTest is what is changed of a rules' test.
type promtoolTest struct {
	Name   string           `yaml:"name"`
	Input  []promtoolSeries `yaml:"input_series"`
	Exprs  []promtoolExpr   `yaml:"promql_expr_test,omitempty"`
	Alerts []promtoolAlert  `yaml:"alert_rule_test,omitempty"`
	Rest   map[string]any   `yaml:",inline"`
}

// promtoolSeries keeps the values as they are written: to YAML 0x10 is a number.
type promtoolSeries struct{ Series, Values string }

type promtoolExpr struct {
	Expr string         `yaml:"expr"`
	Rest map[string]any `yaml:",inline"`
}

// promtoolAlert is what is expected of an alert at a time.
type promtoolAlert struct {
	Expected []promtoolFiring `yaml:"exp_alerts"`
	Rest     map[string]any   `yaml:",inline"`
}

// promtoolFiring is one of an alert's instances.
type promtoolFiring struct {
	Labels map[string]string `yaml:"exp_labels"`
	Rest   map[string]any    `yaml:",inline"`
}

// readUnitTests reads a file of rules/tests. Its groups are evaluated in the order of its rule files, or the other way
// round: Prometheus evaluates each at a time of its own, so what a group has of another may be of one evaluation
// before, and promtool, without a configured order, takes any.
func readUnitTests(t *testing.T, path string, reversed bool) (doc unitTests) {
	t.Helper()
	ruletests.Read(t, path, &doc)
	for i, f := range doc.RuleFiles {
		doc.RuleFiles[i] = filepath.Join(filepath.Dir(path), f)
		var rules struct{ Groups []struct{ Name string } }
		ruletests.Read(t, doc.RuleFiles[i], &rules)
		for _, group := range rules.Groups {
			doc.GroupOrder = append(doc.GroupOrder, group.Name)
		}
	}
	if reversed {
		slices.Reverse(doc.GroupOrder)
	}
	return doc
}

// run gives the tests to promtool; the error has what it printed.
func (u unitTests) run(t *testing.T, name string) error {
	t.Helper()
	out, err := exec.Command(testkit.Tool(t, "promtool"), append([]string{"test", "rules"}, ruletests.Apart(t, name, u)...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%.4000s", err, out)
	}
	return nil
}

// The tests of the rules hold in whichever order the groups are evaluated, for the rules that read either kind of
// histogram, and where each series is there twice, from two clusters with the same nodes, volumes, servers and classes:
// what each cluster gets is what it got alone. They are evaluated twice: the second time all is different.
func TestUnitTests(t *testing.T) {
	written := filepath.Join(testkit.Root(), "rules")
	t.Run("forward", func(t *testing.T) {
		t.Parallel()
		for _, path := range ruletests.Tests(t) {
			if err := readUnitTests(t, path, false).run(t, filepath.Base(path)); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
		}
	})
	t.Run("backward, for either kind of histogram, with two clusters", func(t *testing.T) {
		t.Parallel()
		folder, doubled := made(t, histograms.Either), 0
		for _, path := range ruletests.Tests(t) {
			doc := readUnitTests(t, path, true)
			apart := !slices.ContainsFunc(doc.RuleFiles, func(f string) bool { return withoutCluster[filepath.Base(f)] != "" })
			for i, f := range doc.RuleFiles {
				if filepath.Dir(f) == written {
					doc.RuleFiles[i] = filepath.Join(folder, filepath.Base(f))
				}
			}
			for i := range doc.Tests {
				if apart && doc.Tests[i].double(t) {
					doubled++
				}
			}
			if err := doc.run(t, filepath.Base(path)); err != nil {
				t.Errorf("%s: %v", filepath.Base(path), err)
			}
		}
		if doubled < 100 {
			t.Errorf("only %d tests have two clusters", doubled)
		}
	})
}

// made writes the rules for a kind of histograms into a folder.
func made(t *testing.T, kind histograms.Kind) string {
	t.Helper()
	files, err := rules.Files(kind)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// The rules that are made for other histograms are as many as the written ones, and promtool takes them; the histograms
// that are read by their classic parts are those that are exported.
func TestRulesForOtherHistograms(t *testing.T) {
	written := ruletests.Glob(t, "rules", "*.rules.yaml")
	for _, kind := range []histograms.Kind{histograms.Either, histograms.Classic} {
		files, err := filepath.Glob(filepath.Join(made(t, kind), "*.rules.yaml"))
		if err != nil || len(files) != len(written) {
			t.Errorf("%s: %d files are made of %d (%v)", kind, len(files), len(written), err)
		}
		lint(t, files)
	}
	metrics, err := os.ReadFile(filepath.Join(testkit.Root(), "METRICS.md"))
	if err != nil {
		t.Fatal(err)
	}
	var exported []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| histogram \\|").FindAllStringSubmatch(string(metrics), -1) {
		exported = append(exported, m[1])
	}
	slices.Sort(exported)
	if !slices.Equal(exported, histograms.Exported) {
		t.Errorf("METRICS.md has the histograms %q, rules/histograms knows %q", exported, histograms.Exported)
	}
}

// A rule that depends on one of a group evaluated later passes in one order only, which the check finds.
func TestOrderOfGroupsIsSeen(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"a.rules.yaml": "groups: [{name: a, rules: [{record: a, expr: x + 1}]}]",
		"b.rules.yaml": "groups: [{name: b, rules: [{record: b, expr: a + 1}]}]",
		"ab_test.yaml": "rule_files: [a.rules.yaml, b.rules.yaml]\n" +
			"tests: [{interval: 1m, input_series: [{series: x, values: 1+1x5}], promql_expr_test: [{expr: b, eval_time: 4m, exp_samples: [{labels: b, value: 7}]}]}]",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "ab_test.yaml")
	if err := readUnitTests(t, path, false).run(t, "ab_test.yaml"); err != nil {
		t.Errorf("in order: %v", err)
	}
	var failed *exec.ExitError
	if err := readUnitTests(t, path, true).run(t, "ab_test.yaml"); !errors.As(err, &failed) {
		t.Errorf("the other way round: %v, want promtool to fail", err)
	}
}
