// Package ruletests reads the rules and promtool's tests of them, for tests that check more than these expect.
package ruletests

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Rule is a recording rule or an alert.
type Rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

// Files returns the files of rules, the optional ones too.
func Files(t *testing.T) []string {
	return append(Glob(t, "rules", "*.rules.yaml"), Glob(t, "rules", "optional", "*.rules.yaml")...)
}

// Tests returns the files of promtool's tests.
func Tests(t *testing.T) []string { return Glob(t, "rules", "tests", "*_test.yaml") }

// Glob returns the checkout's files that match a pattern, whose parts are joined. A pattern without files is an error.
func Glob(t *testing.T, parts ...string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(append([]string{testkit.Root()}, parts...)...))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%v: no files (%v)", parts, err)
	}
	return paths
}

// Read decodes a YAML file.
func Read(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// Rules returns the rules of a file.
func Rules(t *testing.T, path string) (all []Rule) {
	t.Helper()
	var content struct {
		Groups []struct {
			Rules []Rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	Read(t, path, &content)
	for _, g := range content.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// ExpectsAlert reports whether one of a file's tests may have an alert: it expects one by its name, or by the series
// ALERTS. To evaluate the others costs as much, and shows nothing of an alert's labels and texts.
func ExpectsAlert(test map[string]any) bool {
	has := func(list string, expects func(map[string]any) bool) bool {
		cases, _ := test[list].([]any)
		return slices.ContainsFunc(cases, func(c any) bool {
			one, _ := c.(map[string]any)
			return expects(one)
		})
	}
	return has("alert_rule_test", func(c map[string]any) bool {
		alerts, _ := c["exp_alerts"].([]any)
		return len(alerts) > 0
	}) || has("promql_expr_test", func(c map[string]any) bool {
		expr, _ := c["expr"].(string)
		samples, _ := c["exp_samples"].([]any)
		return strings.Contains(expr, "ALERTS") && len(samples) > 0
	})
}
