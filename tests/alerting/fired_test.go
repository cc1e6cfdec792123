package alerting

import (
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// Parts of promtool's output.
var (
	sample             = regexp.MustCompile(`\{[^{}]*\} [-+.0-9E]`)
	label              = regexp.MustCompile(`(\w+)="([^"]*)"`)
	renderedAlert      = regexp.MustCompile(`Labels:\{.*?\balertname="(\w+)"`)
	renderedAnnotation = regexp.MustCompile(`(summary|description)=("(?:[^"\\]|\\.)*")`)
)

// outcome is what the alerts of a file of tests do: how they are rendered at the times at which the file expects
// something, and the labels with which they fire at any time.
type outcome struct {
	rendered []firing
	fired    []labels
}

// evaluation is what promtool finds in the rules' own tests, by file. Tests share it: it takes most of a minute.
var evaluation struct {
	once     sync.Once
	outcomes map[string]outcome
}

func evaluated(t *testing.T) map[string]outcome {
	t.Helper()
	promtool := testkit.Tool(t, "promtool") // before once: without it each test is skipped
	evaluation.once.Do(func() { evaluation.outcomes = evaluate(t, promtool) })
	if evaluation.outcomes == nil {
		t.Fatal("the evaluation of the rules' tests failed in another test")
	}
	return evaluation.outcomes
}

// evaluate runs the tests that expect an alert. Each states that nothing fires, and promtool prints what does.
func evaluate(t *testing.T, promtool string) map[string]outcome {
	t.Helper()
	files := ruletests.Tests(t)
	answers := make([]string, len(files))
	var side errgroup.Group
	side.SetLimit(runtime.NumCPU())
	for i, file := range files {
		questions := negated(t, file)
		if len(questions) == 0 {
			continue
		}
		side.Go(func() error {
			out, err := exec.Command(promtool, append([]string{"test", "rules"}, questions...)...).CombinedOutput()
			if answers[i] = string(out); err != nil && !strings.Contains(answers[i], "got:") {
				return fmt.Errorf("%s: %w\n%.2000s", file, err, out)
			}
			return nil
		})
	}
	if err := side.Wait(); err != nil {
		t.Fatal(err)
	}
	outcomes := map[string]outcome{}
	for i, file := range files {
		one, err := parse(answers[i])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		outcomes[file] = one
	}
	return outcomes
}

// parse reads what promtool prints.
func parse(answer string) (all outcome, err error) {
	alert := ""
	for line := range strings.Lines(answer) {
		if strings.Contains(line, "got:") {
			for _, text := range sample.FindAllString(line, -1) {
				l := labels{}
				for _, m := range label.FindAllStringSubmatch(text, -1) {
					l[m[1]] = m[2]
				}
				delete(l, "__name__")
				delete(l, "alertstate")
				if !slices.ContainsFunc(all.fired, func(o labels) bool { return maps.Equal(o, l) }) {
					all.fired = append(all.fired, l)
				}
			}
		}
		if m := renderedAlert.FindStringSubmatch(line); m != nil {
			alert = m[1]
		}
		if !strings.Contains(line, "Annotations:{") {
			continue
		}
		one := firing{alert: alert}
		for _, m := range renderedAnnotation.FindAllStringSubmatch(line, -1) {
			text, err := strconv.Unquote(m[2])
			if err != nil {
				return outcome{}, fmt.Errorf("%w: %s", err, line)
			}
			if m[1] == "summary" {
				one.summary = text
			} else {
				one.description = text
			}
		}
		if !slices.Contains(all.rendered, one) {
			all.rendered = append(all.rendered, one)
		}
	}
	return all, nil
}

// fired returns the alerts that fire in the rules' own tests, with the labels they have there, by name.
func fired(t *testing.T) map[string][]labels {
	t.Helper()
	all := map[string][]labels{}
	for _, one := range evaluated(t) {
		for _, l := range one.fired {
			if name := l["alertname"]; !slices.ContainsFunc(all[name], func(o labels) bool { return maps.Equal(o, l) }) {
				all[name] = append(all[name], l)
			}
		}
	}
	return all
}

// expectation is one of a test's expectations, of a query or of an alert.
type expectation struct {
	At      string `yaml:"eval_time"`
	Samples []any  `yaml:"exp_samples"`
	Alerts  []any  `yaml:"exp_alerts"`
}

// negated writes a file of tests anew, each test apart: those that expect an alert, each with the expectations that no
// alert fires at the times at which it expects something, and that none ever fired.
func negated(t *testing.T, file string) []string {
	t.Helper()
	var doc struct {
		RuleFiles []string         `yaml:"rule_files"`
		Tests     []map[string]any `yaml:"tests"`
		Rest      map[string]any   `yaml:",inline"`
	}
	ruletests.Read(t, file, &doc)
	var names []string
	for i, f := range doc.RuleFiles {
		doc.RuleFiles[i] = filepath.Join(filepath.Dir(file), f)
		names = append(names, alertNames(t, doc.RuleFiles[i])...)
	}
	doc.Tests = slices.DeleteFunc(doc.Tests, func(test map[string]any) bool { return !ruletests.ExpectsAlert(test) })
	for _, test := range doc.Tests {
		last, times := time.Minute, map[string]bool{}
		for _, e := range expectations(t, file, test) {
			at, err := model.ParseDuration(e.At)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			last = max(last, time.Duration(at))
			if len(e.Samples)+len(e.Alerts) > 0 {
				times[e.At] = true
			}
		}
		var none []any
		for _, at := range slices.Sorted(maps.Keys(times)) {
			for _, name := range names {
				none = append(none, map[string]any{"alertname": name, "eval_time": at, "exp_alerts": []any{}})
			}
		}
		test["alert_rule_test"] = none
		test["promql_expr_test"] = []any{map[string]any{"expr": everything, "eval_time": model.Duration(last).String(), "exp_samples": []any{}}}
	}
	return ruletests.Apart(t, filepath.Base(file), doc)
}

// expectations are those of a test, of queries and alerts.
func expectations(t *testing.T, file string, test map[string]any) (all []expectation) {
	t.Helper()
	for _, list := range []string{"promql_expr_test", "alert_rule_test"} {
		text, err := yaml.Marshal(test[list])
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var some []expectation
		if err := yaml.Unmarshal(text, &some); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, some...)
	}
	return all
}
