package contract

import (
	"bufio"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/tests/metricsdoc"
	"github.com/plumbline/plumbline/tests/ruletests"
	"github.com/plumbline/plumbline/tests/testkit"
)

// listedReasons reads a list of testdata: a key, an equals sign, and its reason.
func listedReasons(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	list := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, reason, ok := strings.Cut(line, " = ")
		if key = strings.TrimSpace(key); !ok || strings.TrimSpace(reason) == "" || list[key] != "" {
			t.Errorf("%s: %q: want a key that is there once, =, and a reason", name, line)
		}
		list[key] = reason
	}
	return list
}

// compare reports what is found and not listed, and what is listed and not there.
func compare(t *testing.T, list string, found map[string]string, what string) {
	t.Helper()
	listed := listedReasons(t, list)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if listed[key] == "" {
			t.Errorf("%s%s: list it in testdata/%s\n%s", what, found[key], list, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(listed)) {
		if _, ok := found[key]; !ok {
			t.Errorf("testdata/%s has %q, and there is none any more", list, key)
		}
	}
}

func parsed(t *testing.T, text string) parser.Expr {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return expr
}

// metrics returns the names that an expression selects.
func metrics(of parser.Node) string {
	names := map[string]bool{}
	parser.Inspect(of, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			names[s.Name] = true
		}
		return nil
	})
	return strings.Join(slices.Sorted(maps.Keys(names)), " ")
}

func everyRule(t *testing.T) []rules.Rule {
	t.Helper()
	all, err := rules.All()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every `unless` has its bound, or the reason why it needs none; a new one is not listed yet.
func TestExclusionsAreBounded(t *testing.T) {
	found := map[string]string{}
	for _, r := range everyRule(t) {
		parser.Inspect(parsed(t, r.Expr), func(n parser.Node, _ []parser.Node) error {
			if b, ok := n.(*parser.BinaryExpr); ok && b.Op == parser.LUNLESS {
				found[r.Record+r.Alert+" unless "+metrics(b.RHS)] = ": " + b.RHS.String()
			}
			return nil
		})
	}
	if len(found) < 40 {
		t.Fatalf("only %d exclusions were seen", len(found))
	}
	compare(t, "exclusions.txt", found, "an exclusion without a bound or a reason")
}

// An inhibition hides nobody's trouble if what remains is at least as loud. All others have their reason.
func TestInhibitionsAreBounded(t *testing.T) {
	severity := map[string]int{}
	for _, path := range ruletests.Files(t) {
		for _, r := range ruletests.Rules(t, path) {
			severity[r.Alert] = map[string]int{"info": 1, "warning": 2, "critical": 3}[r.Labels["severity"]]
		}
	}
	text, err := os.ReadFile(filepath.Join(testkit.Root(), "manifests", "kube-prometheus-stack", "alertmanager.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Alertmanager struct {
			Config struct {
				Inhibit []struct {
					Source []string `yaml:"source_matchers"`
					Target []string `yaml:"target_matchers"`
				} `yaml:"inhibit_rules"`
			}
		}
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	names := func(matchers []string) []string {
		for _, m := range matchers {
			if list, ok := strings.CutPrefix(m, "alertname"); ok {
				return strings.Split(strings.Trim(list, `=~"`), "|")
			}
		}
		return nil
	}
	found := map[string]string{}
	for _, rule := range values.Alertmanager.Config.Inhibit {
		for _, source := range names(rule.Source) {
			for _, target := range names(rule.Target) {
				if severity[source] < severity[target] {
					found[source+" inhibits "+target] = ""
				}
			}
		}
	}
	compare(t, "inhibitions.txt", found, "an inhibition by an alert that is less loud")
}

// ranged calls f for every selector of an exported metric on which an expression's result depends, also through
// recorded series, and that no function over time on the way bridges if a scrape fails. What only excludes (`unless`)
// does not count.
func ranged(t *testing.T, recorded map[string][]string, rule, text string, seen map[string]bool, f func(rule, name string)) {
	t.Helper()
	var walk func(n parser.Node)
	walk = func(n parser.Node) {
		switch n := n.(type) {
		case *parser.MatrixSelector, *parser.SubqueryExpr:
			return
		case *parser.BinaryExpr:
			walk(n.LHS)
			if n.Op != parser.LUNLESS {
				walk(n.RHS)
			}
			return
		case *parser.VectorSelector:
			if n.Name == "up" || n.Name == "ALERTS" { // Prometheus' own: they do not go
				return
			}
			if recorded[n.Name] == nil {
				f(rule, n.Name)
			} else if !seen[n.Name] {
				seen[n.Name] = true
				for _, text := range recorded[n.Name] {
					ranged(t, recorded, n.Name, text, seen, f)
				}
			}
			return
		}
		for child := range parser.ChildrenIter(n) {
			walk(child)
		}
	}
	walk(parsed(t, text))
}

// An alert's waiting time does not restart after one failed scrape: its inputs, direct or recorded, are queried over
// time, or are listed with the reason why not.
func TestMissedScrapesEndNoWaiting(t *testing.T) {
	recorded := map[string][]string{}
	for _, r := range everyRule(t) {
		if r.Record != "" {
			recorded[r.Record] = append(recorded[r.Record], r.Expr)
		}
	}
	found := map[string]string{}
	n := 0
	for _, r := range everyRule(t) {
		if r.Alert == "" || r.For == 0 {
			continue
		}
		n++
		ranged(t, recorded, r.Alert, r.Expr, map[string]bool{}, func(rule, name string) { found[rule+" "+name] = "" })
	}
	if n < 30 {
		t.Fatalf("only %d alerts wait", n)
	}
	compare(t, "instant.txt", found, "an alert that waits goes by a single sample of a metric")
}

// Rules work with scrapes of up to a minute: a window that needs two samples has room for them and a little more.
func TestWindowsHoldTwoScrapes(t *testing.T) {
	const least = 2*time.Minute + 30*time.Second
	recorded := map[string]bool{}
	for _, r := range everyRule(t) {
		recorded[r.Record] = true
	}
	found := map[string]string{}
	for _, r := range everyRule(t) {
		parser.Inspect(parsed(t, r.Expr), func(n parser.Node, _ []parser.Node) error {
			if m, ok := n.(*parser.MatrixSelector); ok {
				if s := m.VectorSelector.(*parser.VectorSelector); !recorded[s.Name] && m.Range < least {
					found[fmt.Sprintf("%s %s[%s]", r.Record+r.Alert, s.Name, m.Range)] = ""
				}
			}
			return nil
		})
	}
	compare(t, "windows.txt", found, "a window too short for scrapes of a minute")
}

// isRate reports whether an expression's value is so much a second, or a histogram of it.
func isRate(e parser.Expr) bool {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return strings.Contains(e.Name, ":rate")
	case *parser.ParenExpr:
		return isRate(e.Expr)
	case *parser.SubqueryExpr:
		return isRate(e.Expr)
	case *parser.AggregateExpr:
		return isRate(e.Expr)
	case *parser.BinaryExpr:
		if e.Op == parser.DIV {
			return isRate(e.LHS) && !isRate(e.RHS)
		}
		return isRate(e.LHS) || isRate(e.RHS) && !e.Op.IsSetOperator() && !e.Op.IsComparisonOperator()
	case *parser.Call:
		switch e.Func.Name {
		case "rate", "irate", "increase":
			return true
		case "histogram_avg", "histogram_quantile", "histogram_fraction", "count_over_time", "timestamp":
			return false
		}
		return slices.ContainsFunc(e.Args, isRate)
	}
	return false
}

// Slowness makes what is slow rare, so that a floor of so many a second silences what it should report. Each floor
// counts what takes budget:time_spent:ratio_min all the same, or is listed with the reason why slowness cannot get
// below it.
func TestFloorsOfRates(t *testing.T) {
	const spent = "budget:time_spent:ratio_min"
	found, passed := map[string]string{}, 0
	for _, r := range everyRule(t) {
		parser.Inspect(parsed(t, r.Expr), func(n parser.Node, _ []parser.Node) error {
			e, ok := n.(*parser.BinaryExpr)
			if !ok || !e.Op.IsComparisonOperator() {
				return nil
			}
			of, limit := e.LHS, e.RHS
			if of.Type() == parser.ValueTypeScalar {
				of, limit = limit, of
			}
			switch {
			case limit.Type() != parser.ValueTypeScalar || limit.String() == "0" || !isRate(of):
			case strings.Contains(limit.String(), spent):
				passed++
			default:
				found[fmt.Sprintf("%s%s %s %s %s", r.Record, r.Alert, metrics(of), e.Op, limit)] = ""
			}
			return nil
		})
	}
	if passed < 8 || len(found) < 10 {
		t.Fatalf("only %d floors and %d that slowness passes were seen", len(found), passed)
	}
	compare(t, "floors.txt", found, "a floor of a rate below which slowness may fall")
}

// Every metric of our exporters is read by a rule, a dashboard or a program, or is listed with the reason why it
// exists.
func TestEveryMetricIsRead(t *testing.T) {
	own, err := metricsdoc.Scan(testkit.Root(), "exporters", "loadgen")
	if err != nil {
		t.Fatal(err)
	}
	var queries strings.Builder
	for _, folder := range []string{"rules", "dashboards", "loadgen/predict", "manifests/kubectl-plumbline"} {
		err := filepath.WalkDir(filepath.Join(testkit.Root(), folder), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || strings.Contains(path, "_test.") || strings.Contains(path, "/testdata/") || strings.HasSuffix(path, "ALERTS.md") {
				return err
			}
			text, err := os.ReadFile(path)
			queries.Write(text)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	found := map[string]string{}
	for name := range own {
		if !strings.Contains(queries.String(), name) {
			found[name] = ""
		}
	}
	compare(t, "unread.txt", found, "nothing reads a metric")
}

// The one list of backends with replicas has those of which rules record that they are degraded, and none of those
// without.
func TestBackendsWithReplicas(t *testing.T) {
	with := map[string]bool{}
	var list string
	for _, r := range everyRule(t) {
		switch {
		case strings.HasPrefix(r.Record, "volume:degraded") || strings.HasPrefix(r.Record, "volume:rebuilding"):
			if b := r.Labels["backend"]; b != "" {
				with[b] = true
			}
		case r.Record == "volume:unreplicated:info":
			list = r.Expr
		}
	}
	if len(with) < 4 {
		t.Fatalf("only %d backends with replicas are seen", len(with))
	}
	parser.Inspect(parsed(t, list), func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			for _, m := range s.LabelMatchers {
				if m.Name != "backend" {
					continue
				}
				for b := range with {
					if m.Matches(b) {
						t.Errorf("backend %s has replicas, and is taken for one without", b)
					}
				}
				for _, b := range []string{"ebs.csi.aws.com", "pd.csi.storage.gke.io", "topolvm.io", "azure-disk", "disk", "hostpath", "local-path", "localpv-lvm", "nfs"} {
					if !m.Matches(b) {
						t.Errorf("backend %s has no replicas, and is taken for one with", b)
					}
				}
			}
		}
		return nil
	})
}
