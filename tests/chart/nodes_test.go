package chart

import (
	"maps"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
)

// nodes are kinds of nodes by their labels, and whether a program that measures its node can run there.
var nodes = []struct {
	name   string
	labels map[string]string
	fit    bool
}{
	{"amd64", nil, true},
	{"arm64", map[string]string{core.LabelArchStable: "arm64"}, true},
	{"on EC2", map[string]string{"eks.amazonaws.com/compute-type": "ec2"}, true},
	{"on EC2 in a cluster's own type of nodes", map[string]string{"type": "database"}, true},
	{"Fargate, whose pods have a machine each", map[string]string{"eks.amazonaws.com/compute-type": "fargate"}, false},
	{"virtual-kubelet, which has no machine", map[string]string{"type": "virtual-kubelet"}, false},
	{"s390x, for which there is no image", map[string]string{core.LabelArchStable: "s390x"}, false},
	{"Windows", map[string]string{core.LabelOSStable: "windows"}, false},
}

// checkNodes checks on which nodes a DaemonSet's pods are started: on each that they can run on, and on no other, where
// they would be pending for ever.
func checkNodes(t *testing.T, o *unstructured.Unstructured) {
	t.Helper()
	set := as[apps.DaemonSet](t, o)
	for _, n := range nodes {
		all := labels.Set{core.LabelOSStable: "linux", core.LabelArchStable: "amd64", core.LabelHostname: "node-1"}
		maps.Copy(all, n.labels)
		if got := starts(t, set.Spec.Template.Spec, all); got != n.fit {
			t.Errorf("%s is started on a node of the kind %q: %v, want %v", set.Name, n.name, got, n.fit)
		}
	}
}

// starts is whether a pod that tolerates everything is started on a node with these labels.
func starts(t *testing.T, pod core.PodSpec, node labels.Set) bool {
	t.Helper()
	if !labels.SelectorFromSet(pod.NodeSelector).Matches(node) {
		return false
	}
	if pod.Affinity == nil || pod.Affinity.NodeAffinity == nil || pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return true
	}
	// One term is enough; all of its expressions must hold.
	for _, term := range pod.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		selector := labels.NewSelector()
		for _, e := range term.MatchExpressions {
			operator, known := operators[e.Operator]
			r, err := labels.NewRequirement(e.Key, operator, e.Values)
			if err != nil || !known {
				t.Fatalf("the expression %v of a node affinity: %v", e, err)
			}
			selector = selector.Add(*r)
		}
		if !selector.Empty() && selector.Matches(node) {
			return true
		}
	}
	return false
}

var operators = map[core.NodeSelectorOperator]selection.Operator{
	core.NodeSelectorOpIn: selection.In, core.NodeSelectorOpNotIn: selection.NotIn,
	core.NodeSelectorOpExists: selection.Exists, core.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
}

// TestNodes checks that the programs on each node are started wherever they can run and nowhere else, and that the
// value nodeAffinity overrides this for all of them.
func TestNodes(t *testing.T) {
	for _, o := range daemonSets(t, matrix["longhorn"]...) {
		checkNodes(t, o)
	}
	const required = "requiredDuringSchedulingIgnoredDuringExecution"
	path := []string{"spec", "template", "spec", "affinity", "nodeAffinity", required, "nodeSelectorTerms"}
	term := "nodeAffinity." + required + ".nodeSelectorTerms[0].matchExpressions[0]."
	for _, o := range daemonSets(t, append(matrix["longhorn"], term+"key=databases", term+"operator=Exists")...) {
		terms, _, err := unstructured.NestedSlice(o.Object, path...)
		if err != nil || len(terms) != 1 {
			t.Errorf("%s: the terms are %v: %v", o.GetName(), terms, err)
			continue
		}
		expressions, _, _ := unstructured.NestedSlice(terms[0].(map[string]any), "matchExpressions")
		if len(expressions) != 1 || expressions[0].(map[string]any)["key"] != "databases" {
			t.Errorf("%s: the expressions are %v, want the given one alone", o.GetName(), expressions)
		}
	}
	for _, o := range daemonSets(t, append(matrix["longhorn"], "nodeAffinity=null")...) {
		if terms, found, _ := unstructured.NestedSlice(o.Object, path...); found {
			t.Errorf("%s: the terms are %v, want none", o.GetName(), terms)
		}
	}
}

// daemonSets are the chart's with these values and Longhorn on: three.
func daemonSets(t *testing.T, values ...string) (sets []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range render(t, values...) {
		if o.GetKind() == "DaemonSet" {
			sets = append(sets, o)
		}
	}
	if len(sets) != 3 {
		t.Fatalf("%d DaemonSets, want three", len(sets))
	}
	return sets
}
