package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules/histograms"
)

// ClusterLabel is the label by which one Prometheus distinguishes Kubernetes clusters, unless Options name another one.
// Series without it belong to a cluster without a name.
const ClusterLabel = "cluster"

// ofOneCluster are labels whose values are unique within a cluster only: two clusters may have
// a node, a class or, where one is the other's spare, even a volume of the same name.
var ofOneCluster = []string{
	"node", "device", "volume", "replica", "address", "server", "storageclass", "namespace", "persistentvolumeclaim",
	"pod", "instance", "job", "alertname",
}

// clusterHere stands in an expression for the label that distinguishes clusters.
const clusterHere = "__cluster__"

// placeholders stand for Grafana's intervals while an expression is parsed.
var placeholders = [][2]string{{"$__rate_interval", "7m11s"}, {"$__range", "13m17s"}}

// recordedHistograms are the histograms among what panels read of the rules' records.
var recordedHistograms = []string{
	"device:block_total_seconds:rate5m", "storageclass:block_total_seconds:rate5m", "storageclass:query_duration_seconds:rate5m",
	"storageclass:replica_write_seconds:rate5m",
}

// converted makes panels read a kind of histogram: either, which is the native one, or else the classic one, as where
// data comes by remote write 1.0; or classic ones only, where PromQL knows no others.
func converted(kind histograms.Kind) histograms.Histograms {
	return histograms.Of(kind, append(slices.Clone(histograms.Exported), recordedHistograms...)...)
}

// perCluster makes an expression select by the variable cluster, and keep clusters apart where
// it groups or joins by what is unique within one cluster only. The variable's "All" is the
// pattern .*, which also selects series without the label. It returns whether the result has
// the label, so that a series' name can have it, too.
func perCluster(text string, o Options) (string, bool, error) {
	label := o.clusterLabel()
	text = strings.ReplaceAll(text, clusterHere, label)
	for _, p := range placeholders {
		text = strings.ReplaceAll(text, p[0], p[1])
	}
	text, err := converted(o.histograms()).Expr(text)
	if err != nil {
		return "", false, err
	}
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		return "", false, fmt.Errorf("%w in %s", err, text)
	}
	matcher, err := labels.NewMatcher(labels.MatchRegexp, label, "$cluster")
	if err != nil {
		return "", false, err
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.VectorSelector:
			n.LabelMatchers = append(n.LabelMatchers, matcher)
		case *parser.AggregateExpr:
			if !n.Without {
				n.Grouping = withCluster(n.Grouping, label)
			}
		case *parser.BinaryExpr:
			if n.VectorMatching != nil && n.VectorMatching.On {
				n.VectorMatching.MatchingLabels = withCluster(n.VectorMatching.MatchingLabels, label)
			}
		}
		return nil
	})
	text = expr.Pretty(0)
	for _, p := range placeholders {
		text = strings.ReplaceAll(text, p[1], p[0])
	}
	return text, hasLabel(expr, label), nil
}

// withCluster puts the label in front of others that are unique within one cluster only.
func withCluster(names []string, label string) []string {
	if slices.Contains(names, label) || !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(ofOneCluster, n) }) {
		return names
	}
	return append([]string{label}, names...)
}

// hasLabel reports whether the result of an expression can have the label.
func hasLabel(n parser.Node, label string) bool {
	switch n := n.(type) {
	case *parser.VectorSelector:
		return true
	case *parser.AggregateExpr:
		if n.Op == parser.TOPK || n.Op == parser.BOTTOMK {
			return hasLabel(n.Expr, label)
		}
		return n.Without != slices.Contains(n.Grouping, label)
	case *parser.BinaryExpr:
		if m := n.VectorMatching; m != nil && m.On && m.Card == parser.CardOneToOne && !n.Op.IsSetOperator() {
			return slices.Contains(m.MatchingLabels, label)
		}
		if m := n.VectorMatching; m != nil && m.Card == parser.CardOneToMany {
			return hasLabel(n.RHS, label)
		}
		return hasLabel(n.LHS, label) || n.VectorMatching == nil && hasLabel(n.RHS, label)
	case *parser.NumberLiteral, *parser.StringLiteral:
		return false
	}
	for child := range parser.ChildrenIter(n) {
		if hasLabel(child, label) {
			return true
		}
	}
	return false
}
