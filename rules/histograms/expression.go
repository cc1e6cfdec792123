// Package histograms rewrites PromQL that reads native histograms so that it reads classic ones: instead, where native
// histograms are not even known, or where a native one is not there: each function of a histogram
// then becomes "of the native one, or else of the classic one's parts". That serves a Prometheus of any age, and a
// receiver to which remote write cannot bring every histogram.
//
// What it costs: a classic histogram is as exact as its bounds. Counts, sums and means are the same; a quantile is
// right to within the bucket that it falls into.
package histograms

import (
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// part is one of the metrics of which a classic histogram consists.
type part string

const (
	bucket part = "_bucket"
	sum    part = "_sum"
	count  part = "_count"
)

// Parts are the ends of a classic histogram's metrics' names.
var Parts = []string{string(bucket), string(sum), string(count)}

// bound is the label of a bucket's upper bound.
const bound = "le"

// Kind is what is read.
type Kind string

const (
	// Either is the native histogram, or else the classic one.
	Either Kind = "either"
	// Classic is the classic one only.
	Classic Kind = "classic"
)

// Histograms are the names of metrics that are histograms, and what is to be read of them.
type Histograms struct {
	names map[string]bool
	kind  Kind
}

// Of returns histograms by their names.
func Of(kind Kind, names ...string) Histograms {
	h := Histograms{map[string]bool{}, kind}
	for _, name := range names {
		h.names[name] = true
	}
	return h
}

// Expr returns the expression with that kind of histogram read; the same if it reads none. An expression whose own
// value is a histogram stays as it is: Part makes of it what is stored.
func (h Histograms) Expr(expr string) (string, error) {
	e, err := parse(expr)
	if err != nil {
		return "", err
	}
	if h.is(e) || !h.reads(e) {
		return expr, nil
	}
	e, err = h.either(e)
	if err != nil {
		return "", fmt.Errorf("%w in %s", err, expr)
	}
	return e.Pretty(0), nil
}

// IsHistogram reports whether an expression's value is a histogram.
func (h Histograms) IsHistogram(expr string) (bool, error) {
	e, err := parse(expr)
	return err == nil && h.is(e), err
}

// Part is an expression whose value is a histogram, of one part of the classic one: an element of Parts.
func (h Histograms) Part(expr, of string) (string, error) {
	e, err := parse(expr)
	if err != nil {
		return "", err
	}
	if e, err = h.part(e, part(of)); err != nil {
		return "", fmt.Errorf("%w in %s", err, expr)
	}
	return e.Pretty(0), nil
}

func parse(expr string) (parser.Expr, error) {
	return parser.NewParser(parser.Options{}).ParseExpr(expr)
}

// is reports whether the value is a histogram.
func (h Histograms) is(e parser.Expr) bool {
	switch e := e.(type) {
	case *parser.VectorSelector:
		return h.names[e.Name]
	case *parser.MatrixSelector:
		return h.is(e.VectorSelector)
	case *parser.SubqueryExpr:
		return h.is(e.Expr)
	case *parser.ParenExpr:
		return h.is(e.Expr)
	case *parser.UnaryExpr:
		return h.is(e.Expr)
	case *parser.AggregateExpr:
		return (e.Op == parser.SUM || e.Op == parser.AVG) && h.is(e.Expr)
	case *parser.BinaryExpr:
		if e.Op.IsSetOperator() && e.Op != parser.LOR {
			return h.is(e.LHS)
		}
		return !e.Op.IsComparisonOperator() && (h.is(e.LHS) || h.is(e.RHS))
	case *parser.Call:
		keeps := []string{"rate", "irate", "increase", "delta", "idelta", "sum_over_time", "avg_over_time", "last_over_time", "label_replace", "label_join"}
		return slices.Contains(keeps, e.Func.Name) && h.is(e.Args[0])
	}
	return false
}

// reads reports whether a histogram is read anywhere in it.
func (h Histograms) reads(e parser.Node) bool {
	if s, ok := e.(*parser.VectorSelector); ok {
		return h.names[s.Name]
	}
	return slices.ContainsFunc(children(e), h.reads)
}

// children are a node's, a range's selector among them.
func children(n parser.Node) []parser.Node {
	var all []parser.Node
	for c := range parser.ChildrenIter(n) {
		all = append(all, c)
	}
	return all
}

// either rewrites an expression whose value is a number; what is below it is changed in place.
func (h Histograms) either(e parser.Expr) (parser.Expr, error) {
	if !h.reads(e) {
		return e, nil
	}
	var err error
	switch e := e.(type) {
	case *parser.ParenExpr:
		e.Expr, err = h.either(e.Expr)
		return e, err
	case *parser.UnaryExpr:
		e.Expr, err = h.either(e.Expr)
		return e, err
	case *parser.BinaryExpr:
		// A histogram on the right of a set operator is only tested for existence.
		if e.LHS, err = h.either(e.LHS); err != nil {
			return nil, err
		}
		e.RHS, err = h.either(e.RHS)
		return e, err
	case *parser.SubqueryExpr:
		e.Expr, err = h.either(e.Expr)
		return e, err
	case *parser.AggregateExpr:
		e.Expr, err = h.either(e.Expr)
		return e, err
	case *parser.Call:
		return h.eitherOf(e)
	case *parser.VectorSelector:
		return h.or(e, count, nil)
	}
	return nil, fmt.Errorf("%s: a histogram where none was expected", e)
}

// eitherOf rewrites a function's call.
func (h Histograms) eitherOf(e *parser.Call) (parser.Expr, error) {
	switch e.Func.Name {
	case "histogram_count":
		return h.or(e, count, func(c *parser.Call) (parser.Expr, error) { return h.part(c.Args[0], count) })
	case "histogram_sum":
		return h.or(e, sum, func(c *parser.Call) (parser.Expr, error) { return h.part(c.Args[0], sum) })
	case "histogram_avg":
		return h.or(e, sum, func(c *parser.Call) (parser.Expr, error) {
			copied, err := again(c)
			if err != nil {
				return nil, err
			}
			sums, err := h.part(c.Args[0], sum)
			if err != nil {
				return nil, err
			}
			counts, err := h.part(copied.(*parser.Call).Args[0], count)
			if err != nil {
				return nil, err
			}
			// Of nothing there is no mean.
			some := &parser.ParenExpr{Expr: &parser.BinaryExpr{Op: parser.GTR, LHS: enclosed(counts), RHS: &parser.NumberLiteral{Val: 0}}}
			return &parser.BinaryExpr{Op: parser.DIV, LHS: enclosed(sums), RHS: some, VectorMatching: &parser.VectorMatching{Card: parser.CardOneToOne}}, nil
		})
	case "histogram_quantile", "histogram_fraction":
		return h.or(e, bucket, func(c *parser.Call) (parser.Expr, error) {
			var err error
			last := len(c.Args) - 1
			c.Args[last], err = h.part(c.Args[last], bucket)
			return c, err
		})
	}
	if h.is(e.Args[0]) {
		// How often a histogram was there, and the like.
		return h.or(e, count, nil)
	}
	for i := range e.Args {
		var err error
		if e.Args[i], err = h.either(e.Args[i]); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// or is an expression, or else what is made of a copy of it: by a function, or its part. Of classic histograms only it
// is the latter.
func (h Histograms) or(e parser.Expr, of part, classic func(*parser.Call) (parser.Expr, error)) (parser.Expr, error) {
	other, err := again(e)
	if err != nil {
		return nil, err
	}
	if classic != nil {
		other, err = classic(other.(*parser.Call))
	} else {
		other, err = h.part(other, of)
	}
	if err != nil {
		return nil, err
	}
	if h.kind == Classic {
		return enclosed(other), nil
	}
	return enclosed(&parser.BinaryExpr{Op: parser.LOR, LHS: e, RHS: other, VectorMatching: &parser.VectorMatching{Card: parser.CardManyToMany}}), nil
}

// again is a copy.
func again(e parser.Expr) (parser.Expr, error) { return parse(e.String()) }

func enclosed(e parser.Expr) parser.Expr {
	if _, ok := e.(*parser.BinaryExpr); ok {
		return &parser.ParenExpr{Expr: e}
	}
	return e
}

// part makes each histogram in an expression one of its parts, in place.
func (h Histograms) part(e parser.Expr, of part) (parser.Expr, error) {
	if !h.reads(e) {
		return e, nil
	}
	switch e := e.(type) {
	case *parser.VectorSelector:
		e.Name += string(of)
		for i, m := range e.LabelMatchers {
			if m.Name == model.MetricNameLabel {
				e.LabelMatchers[i] = labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, e.Name)
			}
		}
		return e, nil
	case *parser.AggregateExpr:
		if of == bucket && !e.Without {
			e.Grouping = append(e.Grouping, bound)
		}
	case *parser.BinaryExpr:
		if err := h.match(e, of); err != nil {
			return nil, err
		}
	}
	for _, c := range children(e) {
		if c, ok := c.(parser.Expr); ok {
			if _, err := h.part(c, of); err != nil {
				return nil, err
			}
		}
	}
	return e, nil
}

// match lets a histogram's buckets find what the histogram found.
func (h Histograms) match(e *parser.BinaryExpr, of part) error {
	if of != bucket || e.VectorMatching == nil {
		return nil // a number on one side, or labels as they were
	}
	left, right := h.reads(e.LHS), h.reads(e.RHS)
	m := e.VectorMatching
	switch {
	case left && right && m.On:
		m.MatchingLabels = append(m.MatchingLabels, bound)
	case left && right:
	case e.Op.IsSetOperator() && m.On:
		// Each bucket matches by the labels of the query.
	case !m.On:
		return fmt.Errorf("%s joins buckets with what has none, by all labels: use on (...)", e)
	case m.Card == parser.CardOneToOne && left:
		m.Card = parser.CardManyToOne
	case m.Card == parser.CardOneToOne:
		m.Card = parser.CardOneToMany
	}
	return nil
}
