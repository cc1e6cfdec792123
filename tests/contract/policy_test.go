package contract

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/tests/ruletests"
)

// runbooks is where runbook_url points, in the checkout.
const runbooks = "https://github.com/plumbline/plumbline/blob/main/rules/runbooks/"

var (
	fence  = regexp.MustCompile("(?s)```promql\n(.*?)```")
	tested = regexp.MustCompile(`alertname="(\w+)"`)
)

type alert struct {
	Alert, Expr string
	For         string            `yaml:"for"`
	Labels      map[string]string `yaml:"labels"`
	Annotations map[string]string `yaml:"annotations"`
}

// The alerts that name a query that got slower find it by the same expression: a record would cost more than its copies.
func TestSlowerQuery(t *testing.T) {
	expression := regexp.MustCompile(`printf "([^"]*budget:slower_query:share[^"]*)"`)
	copies := map[string]int{}
	for _, path := range ruletests.Files(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range expression.FindAllStringSubmatch(string(text), -1) {
			copies[match[1]]++
		}
	}
	if len(copies) != 1 {
		t.Errorf("there are %d forms of it, want one: %v", len(copies), copies)
	}
}

// Every alert explains what is wrong, why and what to do, waits long enough to survive a scrape that fails, and is
// tested both firing and silent.
func TestAlertPolicy(t *testing.T) {
	headings := map[string]map[string]bool{} // by file: the headings and whether an alert points there
	for _, path := range ruletests.Glob(t, "rules", "runbooks", "*.md") {
		if filepath.Base(path) == backendsPage {
			continue // of no alert alone, see TestBackendsPage
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]bool{}
		for _, part := range strings.Split(string(text), "\n## ")[1:] {
			name, body, _ := strings.Cut(part, "\n")
			found[strings.ToLower(name)] = false
			for _, section := range []string{"**Meaning.**", "**Impact.**", "**Diagnosis.**", "**Mitigation.**", "```promql"} {
				if !strings.Contains(body, section) {
					t.Errorf("%s: %s has no %s", filepath.Base(path), name, section)
				}
			}
		}
		headings[filepath.Base(path)] = found
	}
	firing, silent := testedAlerts(t)
	seen := map[string]bool{}
	for _, path := range ruletests.Files(t) {
		var content struct {
			Groups []struct {
				Rules []alert `yaml:"rules"`
			} `yaml:"groups"`
		}
		ruletests.Read(t, path, &content)
		for _, g := range content.Groups {
			for _, a := range g.Rules {
				if a.Alert == "" {
					continue
				}
				where := filepath.Base(path) + " " + a.Alert
				if seen[a.Alert] {
					t.Errorf("%s: there are two alerts of this name", where)
				}
				seen[a.Alert] = true
				for _, annotation := range []string{"summary", "description", "runbook_url"} {
					if a.Annotations[annotation] == "" {
						t.Errorf("%s has no %s", where, annotation)
					}
				}
				switch a.Labels["severity"] {
				case "critical", "warning", "info":
				default:
					t.Errorf("%s has severity %q; want critical, warning or info", where, a.Labels["severity"])
				}
				// Dashboards and commands select by it. It is in each rule: a group's labels are for Prometheus 3, and
				// for what it records, too.
				if a.Labels["part_of"] != "plumbline" {
					t.Errorf("%s has no label part_of: plumbline", where)
				}
				if a.For == "" {
					t.Errorf("%s has no for: it would fire on a single evaluation", where)
				}
				page, anchor, _ := strings.Cut(strings.TrimPrefix(a.Annotations["runbook_url"], runbooks), "#")
				if _, ok := headings[page][anchor]; !ok || anchor != strings.ToLower(a.Alert) {
					t.Errorf("%s: its runbook_url finds no heading in rules/runbooks", where)
				} else {
					headings[page][anchor] = true
				}
				if !firing[a.Alert] {
					t.Errorf("%s has no test in which it fires", where)
				}
				if !silent[a.Alert] {
					t.Errorf("%s has no test in which it stays silent", where)
				}
			}
		}
	}
	if len(seen) < 20 {
		t.Errorf("only %d alerts were found; the test does not see the rules", len(seen))
	}
	for page, found := range headings {
		for anchor, used := range found {
			if !used {
				t.Errorf("rules/runbooks/%s: no alert points to #%s", page, anchor)
			}
		}
	}
}

// testedAlerts returns the alerts that a rules' test expects to fire and those it expects not to:
// a query for ALERTS by name with samples, or without any.
func testedAlerts(t *testing.T) (firing, silent map[string]bool) {
	firing, silent = map[string]bool{}, map[string]bool{}
	for _, path := range ruletests.Tests(t) {
		var content struct {
			Tests []struct {
				Exprs []struct {
					Expr    string `yaml:"expr"`
					Samples []any  `yaml:"exp_samples"`
				} `yaml:"promql_expr_test"`
			} `yaml:"tests"`
		}
		ruletests.Read(t, path, &content)
		for _, test := range content.Tests {
			for _, e := range test.Exprs {
				if m := tested.FindStringSubmatch(e.Expr); m != nil {
					if len(e.Samples) > 0 {
						firing[m[1]] = true
					} else {
						silent[m[1]] = true
					}
				}
			}
		}
	}
	return firing, silent
}

// The queries in the runbooks parse and name only what is exported or recorded.
func TestRunbookQueries(t *testing.T) {
	_, recorded := collect(t)
	names := exported(t)
	for name := range recorded {
		names[name] = nil
	}
	n := 0
	eachRunbookQuery(t, func(page, text string, expr parser.Expr) {
		n++
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			if s, ok := node.(*parser.VectorSelector); ok {
				if err := names.check(s); err != nil {
					t.Errorf("%s: %v\n%s", page, err, text)
				}
			}
			return nil
		})
	})
	if n < 30 {
		t.Errorf("only %d queries were found in the runbooks", n)
	}
}

// eachRunbookQuery calls do with each query of the runbooks, and reports those that do not parse.
func eachRunbookQuery(t *testing.T, do func(page, text string, expr parser.Expr)) {
	t.Helper()
	promql := parser.NewParser(parser.Options{})
	for _, path := range ruletests.Glob(t, "rules", "runbooks", "*.md") {
		page, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, query := range fence.FindAllStringSubmatch(string(page), -1) {
			expr, err := promql.ParseExpr(query[1])
			if err != nil {
				t.Errorf("%s: %v\n%s", filepath.Base(path), err, query[1])
				continue
			}
			do(filepath.Base(path), query[1], expr)
		}
	}
}
