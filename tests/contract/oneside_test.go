package contract

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules"
)

// A second series with the same labels of `on` on the right side of `group_left (x)` is an error of the whole rule: one
// volume whose objects contradict each other would end the rule for all volumes. So that side has one series for each.
func TestOneSideIsUnique(t *testing.T) {
	all := everyRule(t)
	one := oneSide{recorded: map[string][]rules.Rule{}}
	for _, r := range all {
		one.recorded[r.Record] = append(one.recorded[r.Record], r)
	}
	seen := 0
	for _, r := range all {
		n, wrong := one.check(parsed(t, r.Expr))
		seen += n
		for _, text := range wrong {
			t.Errorf("%s%s: %s; use topk by (…) (1, …) or `or on (…)`", r.Record, r.Alert, text)
		}
	}
	if seen < 60 {
		t.Errorf("only %d joins were found; the test does not see the rules", seen)
	}
}

// oneSide decides by expressions alone whether they have at most one series for each value of some labels.
type oneSide struct{ recorded map[string][]rules.Rule }

// check counts an expression's joins that add labels, and returns those whose one side may have several series.
func (o oneSide) check(expr parser.Expr) (n int, wrong []string) {
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		e, ok := node.(*parser.BinaryExpr)
		if !ok || e.VectorMatching == nil || len(e.VectorMatching.Include) == 0 {
			return nil
		}
		n++
		side := e.RHS
		if e.VectorMatching.Card == parser.CardOneToMany {
			side = e.LHS
		}
		if on := e.VectorMatching.MatchingLabels; !e.VectorMatching.On || !o.unique(side, on) {
			wrong = append(wrong, "several series for one of ("+strings.Join(on, ", ")+") in "+side.String())
		}
		return nil
	})
	return n, wrong
}

func within(some, all []string) bool {
	return !slices.ContainsFunc(some, func(l string) bool { return !slices.Contains(all, l) })
}

func (o oneSide) unique(expr parser.Expr, on []string) bool {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return o.unique(e.Expr, on)
	case *parser.AggregateExpr:
		if e.Without {
			return false
		}
		switch e.Op {
		case parser.TOPK, parser.BOTTOMK, parser.LIMITK:
			return e.Param.String() == "1" && within(e.Grouping, on) || o.unique(e.Expr, on)
		case parser.COUNT_VALUES:
			return within(on, e.Grouping) && o.unique(e.Expr, on)
		}
		return within(e.Grouping, on) || within(on, e.Grouping) && o.unique(e.Expr, on)
	case *parser.BinaryExpr:
		return o.uniqueBinary(e, on)
	case *parser.Call:
		return o.uniqueCall(e, on)
	case *parser.VectorSelector:
		// Two rules of one name have one label apart, by which they can be selected.
		by := slices.DeleteFunc(slices.Clone(o.recorded[e.Name]), func(r rules.Rule) bool {
			return slices.ContainsFunc(e.LabelMatchers, func(m *labels.Matcher) bool {
				value, ok := r.Labels[m.Name]
				return ok && !m.Matches(value)
			})
		})
		return len(by) == 1 && o.uniqueText(by[0].Expr, on)
	}
	// Over time one series may have come after another.
	return false
}

func (o oneSide) uniqueText(text string, on []string) bool {
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	return err == nil && o.unique(expr, on) && o.only(expr, on)
}

func (o oneSide) uniqueBinary(e *parser.BinaryExpr, on []string) bool {
	m := e.VectorMatching
	if m == nil {
		return o.unique(e.LHS, on) || o.unique(e.RHS, on)
	}
	apart := m.On && within(m.MatchingLabels, on)
	switch {
	case e.Op == parser.LOR:
		return apart && o.unique(e.LHS, on) && o.unique(e.RHS, on)
	case e.Op == parser.LAND && apart && counted(e.RHS) == metrics(e.LHS):
		return true
	case e.Op == parser.LAND || e.Op == parser.LUNLESS || m.Card == parser.CardManyToOne:
		return o.unique(e.LHS, on)
	case m.Card == parser.CardOneToMany:
		return o.unique(e.RHS, on)
	}
	return apart || o.unique(e.LHS, on)
}

// counted returns the metrics of which an expression keeps what is there once: `count by (…) (…) == 1`.
func counted(expr parser.Expr) string {
	for {
		p, ok := expr.(*parser.ParenExpr)
		if !ok {
			break
		}
		expr = p.Expr
	}
	if e, ok := expr.(*parser.BinaryExpr); ok && e.Op == parser.EQLC && e.RHS.String() == "1" {
		if a, ok := e.LHS.(*parser.AggregateExpr); ok && a.Op == parser.COUNT {
			return metrics(a.Expr)
		}
	}
	return "nothing"
}

func (o oneSide) uniqueCall(e *parser.Call, on []string) bool {
	switch e.Func.Name {
	case "label_replace", "label_join":
		to := literal(e.Args[1])
		if !slices.Contains(on, to) {
			break
		}
		on = slices.DeleteFunc(slices.Clone(on), func(l string) bool { return l == to })
		if e.Func.Name == "label_replace" && literal(e.Args[2]) == "$1" && slices.Contains([]string{"(.*)", "(.+)"}, literal(e.Args[4])) {
			on = append(on, literal(e.Args[3]))
		}
	}
	return len(e.Args) > 0 && o.unique(e.Args[0], on)
}

func literal(e parser.Expr) string {
	if s, ok := e.(*parser.StringLiteral); ok {
		return s.Val
	}
	return ""
}

// only reports whether a recorded series has no labels but some. After a restart Prometheus does not end what it recorded before: with
// another label beside these, one series would be there twice for some minutes.
func (o oneSide) only(expr parser.Expr, some []string) bool {
	switch e := expr.(type) {
	case *parser.ParenExpr:
		return o.only(e.Expr, some)
	case *parser.BinaryExpr:
		return (e.VectorMatching == nil || len(e.VectorMatching.Include) == 0) && o.only(e.LHS, some)
	case *parser.AggregateExpr:
		if slices.Contains([]parser.ItemType{parser.TOPK, parser.BOTTOMK, parser.LIMITK}, e.Op) {
			return o.only(e.Expr, some)
		}
		return !e.Without && within(e.Grouping, some)
	}
	return false
}
