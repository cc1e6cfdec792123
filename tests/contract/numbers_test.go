package contract

import (
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/tests/ruletests"
)

var (
	constant = regexp.MustCompile(`^vector\(([\d.]+)\)$`)
	partOf   = regexp.MustCompile(`^([\d.]+) \* min\(([a-z0-9_:]+)\)$`)
	limit    = regexp.MustCompile(`\b((?:budget|threshold):[a-z0-9_:]+)`)
	// besideRule is a number before the rule that has it: 50 ms (`budget:wal_sync_seconds:p99`).
	besideRule = regexp.MustCompile("\\b(\\d+(?:\\.\\d+)?)( ms| %)?[^0-9`.()]*\\(`?((?:budget|threshold):[a-z0-9_:]+)")
	aNumber    = regexp.MustCompile(`\b(\d+(?:\.\d+)?)( ms| %)?`)
)

// fires ends the part of a sentence that has an alert's limits.
const fires = "the alert fires"

func valueOf(number, unit string) float64 {
	v, _ := strconv.ParseFloat(number, 64)
	return v / map[string]float64{"": 1, " %": 100, " ms": 1000}[unit]
}

func about(v float64) func(float64) bool {
	return func(w float64) bool { return math.Abs(v-w) < 1e-9 }
}

// limitsOf are the numbers of an alert's expression, those of the constants that it reads, and their products.
func limitsOf(expr parser.Expr, constants map[string]float64) (all []float64) {
	var factors []float64
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.NumberLiteral:
			all = append(all, n.Val)
		case *parser.VectorSelector:
			if v, ok := constants[n.Name]; ok {
				factors = append(factors, v)
			}
		}
		return nil
	})
	numbers := all
	for _, v := range factors {
		all = append(all, v)
		for _, w := range numbers {
			all = append(all, v*w)
		}
	}
	return all
}

// firesAt are the numbers at which a runbook's text has the alert fire.
func firesAt(text string) (all []float64) {
	for sentence := range strings.SplitSeq(strings.Join(strings.Fields(fence.ReplaceAllString(text, "")), " "), ". ") {
		before, _, ok := strings.Cut(sentence, fires)
		if !ok {
			continue
		}
		for _, m := range aNumber.FindAllStringSubmatch(quoted.ReplaceAllString(before, ""), -1) {
			all = append(all, valueOf(m[1], m[2]))
		}
	}
	return all
}

// A number that a runbook has for its reader at night is that of the rules: beside a budget or a threshold its value,
// and before "the alert fires" one of the alert's own.
func TestRunbookNumbers(t *testing.T) {
	constants, alerts, recorded := map[string]float64{}, map[string]string{}, map[string]bool{}
	for _, path := range ruletests.Files(t) {
		for _, r := range ruletests.Rules(t, path) {
			recorded[r.Record] = true
			if r.Alert != "" {
				alerts[r.Alert] = r.Expr
			}
			if m := constant.FindStringSubmatch(strings.TrimSpace(r.Expr)); m != nil {
				constants[r.Record] = valueOf(m[1], "")
			}
			if m := partOf.FindStringSubmatch(strings.TrimSpace(r.Expr)); m != nil {
				constants[r.Record] = valueOf(m[1], "") * constants[m[2]]
			}
		}
	}
	beside, before := 0, 0
	for _, path := range ruletests.Glob(t, "rules", "runbooks", "*.md") {
		page := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range limit.FindAllStringSubmatch(string(text), -1) {
			if !recorded[m[1]] {
				t.Errorf("%s: no rule records %s", page, m[1])
			}
		}
		for _, m := range besideRule.FindAllStringSubmatch(string(text), -1) {
			beside++
			if v, ok := constants[m[3]]; !ok || !about(v)(valueOf(m[1], m[2])) {
				t.Errorf("%s: %s%s is not the value of %s, %v", page, m[1], m[2], m[3], v)
			}
		}
		_, all := sections(t, page)
		for _, s := range all {
			for _, v := range firesAt(s.text) {
				before++
				if !slices.ContainsFunc(limitsOf(parsed(t, alerts[s.heading]), constants), about(v)) {
					t.Errorf("%s: %v, at which %s fires, is no limit of it", page, v, s.heading)
				}
			}
		}
	}
	if beside < 8 || before < 20 {
		t.Errorf("only %d numbers beside a rule and %d before %q were found", beside, before, fires)
	}
	// The test itself finds numbers, and not those of code.
	if got := firesAt("Usual: 7. Above 5 ms,\nand 3 % of `[2m]`, the alert fires; at 9 more."); !slices.Equal(got, []float64{0.005, 0.03}) {
		t.Errorf("numbers of a sentence: %v", got)
	}
}
