package chart

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestNodes checks that the programs on each node are started wherever they can run and nowhere else, and that the value
// nodeAffinity says otherwise for all of them.
func TestNodes(t *testing.T) {
	for _, o := range daemonSets(t, matrix["longhorn"]...) {
		kubetest.CheckNodes(t, o)
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
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	for _, o := range objects {
		if o.GetKind() == "DaemonSet" {
			sets = append(sets, o)
		}
	}
	if len(sets) != 3 {
		t.Fatalf("%d DaemonSets, want three", len(sets))
	}
	return sets
}
