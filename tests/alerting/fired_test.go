package alerting

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sync/errgroup"

	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// labels of an alert, without its state.
type labels map[string]string

// everything is all that ever fired.
const everything = `last_over_time(ALERTS{alertstate="firing"}[30d])`

var (
	sample = regexp.MustCompile(`\{[^{}]*\} [-+.0-9E]`)
	label  = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// fired returns the alerts that fire in the rules' own tests, with the labels they have there,
// by name: promtool is asked for all that ever fired, and told that it should be nothing.
func fired(t *testing.T) map[string][]labels {
	t.Helper()
	promtool := testkit.Tool(t, "promtool")
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "rules", "tests", "*_test.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no tests of rules: %v", err)
	}
	answers := make([]string, len(files))
	var side errgroup.Group
	side.SetLimit(runtime.NumCPU())
	for i, file := range files {
		question := askFor(t, file)
		side.Go(func() error {
			out, err := exec.Command(promtool, "test", "rules", question).CombinedOutput()
			if answers[i] = string(out); err != nil && !strings.Contains(answers[i], "got:") {
				return fmt.Errorf("%s: %w\n%s", file, err, out)
			}
			return nil
		})
	}
	if err := side.Wait(); err != nil {
		t.Fatal(err)
	}
	all := map[string][]labels{}
	for _, answer := range answers {
		for line := range strings.Lines(answer) {
			if !strings.Contains(line, "got:") {
				continue
			}
			for _, text := range sample.FindAllString(line, -1) {
				l := labels{}
				for _, m := range label.FindAllStringSubmatch(text, -1) {
					l[m[1]] = m[2]
				}
				delete(l, "__name__")
				delete(l, "alertstate")
				if name := l["alertname"]; !slices.ContainsFunc(all[name], func(o labels) bool { return maps.Equal(o, l) }) {
					all[name] = append(all[name], l)
				}
			}
		}
	}
	return all
}

// askFor writes a file of tests anew, those that expect an alert, with one question each.
func askFor(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		RuleFiles []string         `yaml:"rule_files"`
		Interval  string           `yaml:"evaluation_interval,omitempty"`
		Tests     []map[string]any `yaml:"tests"`
	}
	if err := yaml.Unmarshal(data, &doc); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for i, f := range doc.RuleFiles {
		doc.RuleFiles[i] = filepath.Join(filepath.Dir(file), f)
	}
	doc.Tests = slices.DeleteFunc(doc.Tests, func(test map[string]any) bool { return !ruletests.ExpectsAlert(test) })
	for _, test := range doc.Tests {
		last := time.Minute
		for _, list := range []string{"promql_expr_test", "alert_rule_test"} {
			cases, _ := test[list].([]any)
			for _, c := range cases {
				at, err := model.ParseDuration(c.(map[string]any)["eval_time"].(string))
				if err != nil {
					t.Fatalf("%s: %v", file, err)
				}
				last = max(last, time.Duration(at))
			}
		}
		delete(test, "alert_rule_test")
		test["promql_expr_test"] = []any{map[string]any{"expr": everything, "eval_time": model.Duration(last).String(), "exp_samples": []any{}}}
	}
	out, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), filepath.Base(file))
	if err := os.WriteFile(path, out, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
