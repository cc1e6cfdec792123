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

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/histograms"
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
	Name  string           `yaml:"name"`
	Input []promtoolSeries `yaml:"input_series"`
	Exprs []promtoolExpr   `yaml:"promql_expr_test"`
	Rest  map[string]any   `yaml:",inline"`
}

// promtoolSeries keeps the values as they are written: to YAML 0x10 is a number.
type promtoolSeries struct{ Series, Values string }

type promtoolExpr struct {
	Expr string         `yaml:"expr"`
	Rest map[string]any `yaml:",inline"`
}

// readUnitTests reads a file of rules/tests. Its groups are evaluated in the order of its rule files, or the other way
// round: Prometheus evaluates each at a time of its own, so what a group has of another may be of one evaluation before,
// and promtool, not told an order, takes any.
func readUnitTests(t *testing.T, path string, reversed bool) (doc unitTests) {
	t.Helper()
	read(t, path, &doc)
	for i, f := range doc.RuleFiles {
		doc.RuleFiles[i] = filepath.Join(filepath.Dir(path), f)
		var rules struct{ Groups []struct{ Name string } }
		read(t, doc.RuleFiles[i], &rules)
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
	text, err := yaml.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(testkit.Tool(t, "promtool"), "test", "rules", file).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%.4000s", err, out)
	}
	return nil
}

// The tests of the rules hold in whichever order the groups are evaluated, and for the rules that read either kind of histogram,
// too. They are evaluated twice and not four times: the second time all is different.
func TestRulesInAnyOrder(t *testing.T) {
	written := filepath.Join(testkit.Root(), "rules")
	for _, c := range []struct {
		name     string
		reversed bool
		folder   string // of the rules
	}{
		{"forward", false, written},
		{"backward, for either kind of histogram", true, made(t, histograms.Either)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, path := range glob(t, "rules", "tests", "*_test.yaml") {
				doc := readUnitTests(t, path, c.reversed)
				for i, f := range doc.RuleFiles {
					if filepath.Dir(f) == written {
						doc.RuleFiles[i] = filepath.Join(c.folder, filepath.Base(f))
					}
				}
				if err := doc.run(t, filepath.Base(path)); err != nil {
					t.Errorf("%s, groups evaluated %s: %v", filepath.Base(path), c.name, err)
				}
			}
		})
	}
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

// The rules that are made for other histograms are as many as the written ones, and promtool takes them; the histograms that are
// read by their classic parts are those that are exported.
func TestRulesForOtherHistograms(t *testing.T) {
	written := glob(t, "rules", "*.rules.yaml")
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

// A rule that goes by one of the group evaluated after it passes in one order only, and that is told.
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
