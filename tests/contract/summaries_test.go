package contract

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// rendered is an alert's annotation with the labels and the value of a test in which it fires.
type rendered struct{ alert, annotation, text string }

// firing is an alert as one of its tests renders it.
type firing struct{ alert, summary, description string }

func (f firing) annotations() []rendered {
	return []rendered{{f.alert, "summary", f.summary}, {f.alert, "description", f.description}}
}

var (
	renderedAlert      = regexp.MustCompile(`Labels:\{.*?\balertname="(\w+)"`)
	renderedAnnotation = regexp.MustCompile(`(summary|description)=("(?:[^"\\]|\\.)*")`)

	empty = regexp.MustCompile(`<no value>|<error|error executing|\bNaN\b|[+-]Inf\b|  |\(\)|\(/|/\)|\( | \)|''| [.,;:]|,\.|%!`)
	// A number that a sentence or a part of it ends with has no unit.
	number  = regexp.MustCompile(`(?:^|[\s(])(\d+(?:\.\d+)?)(?:[.,;:)]+(?:\s|$)|$)`)
	precise = regexp.MustCompile(`\d\.\d{4,}`)
	grade   = regexp.MustCompile(`grade \d of \d`)
)

// faults returns what is wrong with an annotation: no whole sentences, an empty label, a number without a unit.
func (r rendered) faults() (wrong []string) {
	text := r.text
	if text == "" || !regexp.MustCompile(`^['"\w]`).MatchString(text) {
		wrong = append(wrong, "does not begin with a word")
	}
	if !strings.HasSuffix(text, ".") {
		wrong = append(wrong, "does not end with a full stop")
	}
	if r.annotation == "summary" && regexp.MustCompile(`\. [A-Z]`).MatchString(text) {
		wrong = append(wrong, "is more than a sentence")
	}
	if found := empty.FindString(text); found != "" {
		wrong = append(wrong, fmt.Sprintf("has an empty value at %q", found))
	}
	if m := number.FindStringSubmatch(grade.ReplaceAllString(text, "a grade")); m != nil {
		wrong = append(wrong, fmt.Sprintf("has the number %s without a unit", m[1]))
	}
	if found := precise.FindString(text); found != "" {
		wrong = append(wrong, fmt.Sprintf("has a number of too many digits, %s", found))
	}
	return wrong
}

// render has promtool render the annotations of all alerts at all times that a file of tests looks at, in those of its tests that
// expect one: it is told that none should fire, and says which do.
func render(t *testing.T, promtool, path string) (all []firing) {
	t.Helper()
	var doc struct {
		RuleFiles []string         `yaml:"rule_files"`
		Tests     []map[string]any `yaml:"tests"`
		Rest      map[string]any   `yaml:",inline"`
	}
	read(t, path, &doc)
	var names []string
	for i, f := range doc.RuleFiles {
		doc.RuleFiles[i] = filepath.Join(filepath.Dir(path), f)
		names = append(names, alertNames(t, doc.RuleFiles[i])...)
	}
	doc.Tests = slices.DeleteFunc(doc.Tests, func(test map[string]any) bool { return !ruletests.ExpectsAlert(test) })
	if len(doc.Tests) == 0 {
		return nil
	}
	for _, test := range doc.Tests {
		var times []string
		for _, list := range []string{"promql_expr_test", "alert_rule_test"} {
			cases, _ := test[list].([]any)
			for _, c := range cases {
				c := c.(map[string]any)
				samples, _ := c["exp_samples"].([]any)
				alerts, _ := c["exp_alerts"].([]any)
				at := c["eval_time"].(string)
				if len(samples)+len(alerts) > 0 && !slices.Contains(times, at) {
					times = append(times, at)
				}
			}
		}
		delete(test, "promql_expr_test")
		var ask []any
		for _, at := range times {
			for _, name := range names {
				ask = append(ask, map[string]any{"alertname": name, "eval_time": at, "exp_alerts": []any{}})
			}
		}
		test["alert_rule_test"] = ask
	}
	text, err := yaml.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), filepath.Base(path))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput()
	if err != nil && !strings.Contains(string(out), "got:") {
		t.Fatalf("%s: %v\n%.2000s", path, err, out)
	}
	alert := ""
	for line := range strings.Lines(string(out)) {
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
				t.Fatalf("%s: %v\n%s", path, err, line)
			}
			if m[1] == "summary" {
				one.summary = text
			} else {
				one.description = text
			}
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return all
}

// alertNames returns the names of the alerts in files of rules.
func alertNames(t *testing.T, files ...string) (names []string) {
	t.Helper()
	for _, file := range files {
		for _, r := range readRules(t, file) {
			if r.Alert != "" {
				names = append(names, r.Alert)
			}
		}
	}
	return names
}

// The summary and the description of each alert, rendered with the labels and values of its own tests, are whole sentences; and
// rules/ALERTS.md shows them.
func TestSummariesAreSentences(t *testing.T) {
	t.Parallel()
	if *update && isMade(t) {
		return
	}
	promtool := testkit.Tool(t, "promtool")
	names := alertNames(t, ruleFiles(t)...)
	seen := map[string][]firing{}
	var one sync.Mutex
	t.Run("tests", func(t *testing.T) {
		for _, path := range glob(t, "rules", "tests", "*_test.yaml") {
			t.Run(filepath.Base(path), func(t *testing.T) {
				t.Parallel()
				all := render(t, promtool, path)
				one.Lock()
				defer one.Unlock()
				for _, f := range all {
					seen[f.alert] = append(seen[f.alert], f)
					for _, r := range f.annotations() {
						for _, wrong := range r.faults() {
							t.Errorf("the %s of %s %s: %s", r.annotation, r.alert, wrong, r.text)
						}
					}
				}
			})
		}
	})
	for _, name := range names {
		if len(seen[name]) == 0 {
			t.Errorf("no test renders %s", name)
		}
	}
	checkAlertsPage(t, seen)
}

// The test itself finds what it is there to find.
func TestFaultsFindMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"Volume v (db/c) is slow.":              "",
		"A write takes 4.4ms, 3 times as long.": "",
		"It is of grade 3 of 4.":                "",
		"It is 85.2% full, for 2m 0s.":          "",
		"Volume v (/) is slow.":                 "empty value",
		"Volume  is slow.":                      "empty value",
		"Writes of volume .":                    "empty value",
		"It is on node , disk sda.":             "empty value",
		"It takes NaN seconds.":                 "empty value",
		"Server <no value> is slow.":            "empty value",
		"Volume v is slow":                      "full stop",
		"It has waited for 12.":                 "without a unit",
		"It has 12, others less.":               "without a unit",
		"It is 1.33333333 times as slow.":       "too many digits",
		"One thing. Another thing.":             "more than a sentence",
		" is slow.":                             "begin with a word",
	} {
		got := strings.Join(rendered{"A", "summary", text}.faults(), "; ")
		if (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
