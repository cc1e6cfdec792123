package chart

import (
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// TestMonitorsTrustNoOthers checks that each monitor looks for pods only in the namespaces where those are that it is
// for; one that names none has them in its own, as our programs' have. It takes the labels that they give their series,
// and somebody else's pod could speak for any volume or database.
func TestMonitorsTrustNoOthers(t *testing.T) {
	seen := map[string]bool{}
	for _, backend := range backends() {
		its := "its-" + backend
		objects := render(t, slices.Concat(matrix["canaries"], switches(backend), []string{"verdict.events=true", backend + ".namespace=" + its})...)
		for _, o := range objects {
			if o.GetKind() != "PodMonitor" && o.GetKind() != "ServiceMonitor" {
				continue
			}
			seen[o.GetName()] = true
			want := []string{its}
			if o.GetName() == "plumbline-canary" {
				want = []string{"books", "plumbline"}
			} else if selectsOwn(objects, o) {
				want = nil
			}
			if every, _, _ := unstructured.NestedBool(o.Object, "spec", "namespaceSelector", "any"); every {
				t.Errorf("%s %s looks into every namespace", o.GetKind(), o.GetName())
			}
			if names, _, _ := unstructured.NestedStringSlice(o.Object, "spec", "namespaceSelector", "matchNames"); !slices.Equal(names, want) {
				t.Errorf("%s %s looks into %q, want %q", o.GetKind(), o.GetName(), names, want)
			}
		}
	}
	if want := 8 + foreignMonitors(); len(seen) != want {
		t.Errorf("%d monitors, want %d", len(seen), want)
	}
}

// selectsOwn reports whether a monitor selects the pods of one of the chart's programs.
func selectsOwn(objects []*unstructured.Unstructured, monitor *unstructured.Unstructured) bool {
	wanted, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	return slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool {
		pod, found, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
		return found && labels.SelectorFromSet(wanted).Matches(labels.Set(pod))
	})
}

// TestMonitorsNameTheEngine checks that what m-exporter exports beside a volume's target carries the engine's name, by
// which the rules distinguish cStor and Jiva, without a pod's label: cStor's target has no such label.
func TestMonitorsNameTheEngine(t *testing.T) {
	objects := render(t, matrix["every program"]...)
	want := map[string]string{"cstor-volume": "cstor", "jiva-volume": "jiva"}
	for _, o := range objects {
		engine := want[o.GetName()]
		if o.GetKind() != "PodMonitor" || engine == "" {
			continue
		}
		delete(want, o.GetName())
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
		for _, e := range endpoints {
			relabelings, _, _ := unstructured.NestedSlice(e.(map[string]any), "relabelings")
			if !slices.ContainsFunc(relabelings, func(r any) bool {
				rule := r.(map[string]any)
				return rule["targetLabel"] == "openebs_cas_type" && rule["replacement"] == engine && rule["sourceLabels"] == nil
			}) {
				t.Errorf("%s: no relabeling sets openebs_cas_type to %s: %v", o.GetName(), engine, relabelings)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("no monitors %v", want)
	}
}

// TestMonitorOfCanaries checks that the canaries' monitor finds each of its release's canaries, in their namespaces
// alone, and not those of another release.
func TestMonitorOfCanaries(t *testing.T) {
	objects := render(t, matrix["canaries"]...)
	var monitor *unstructured.Unstructured
	var canaries []labels.Set
	var in []string
	for _, o := range objects {
		switch {
		case o.GetKind() == "PodMonitor" && o.GetName() == "plumbline-canary":
			monitor = o
		case o.GetKind() == "Deployment":
			pod, _, _ := unstructured.NestedStringMap(o.Object, "spec", "template", "metadata", "labels")
			canaries, in = append(canaries, pod), append(in, o.GetNamespace())
		}
	}
	if monitor == nil || len(canaries) != 2 {
		t.Fatalf("there is a monitor: %v, and there are %d canaries, want two", monitor != nil, len(canaries))
	}
	slices.Sort(in)
	if names, _, _ := unstructured.NestedStringSlice(monitor.Object, "spec", "namespaceSelector", "matchNames"); !slices.Equal(names, in) {
		t.Errorf("it looks into %q, want %q", names, in)
	}
	wanted, _, _ := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	selector := labels.SelectorFromSet(wanted)
	for _, pod := range canaries {
		if !selector.Matches(pod) {
			t.Errorf("it selects %v, which a canary with the labels %v does not fit", wanted, pod)
		}
		others := labels.Merge(pod, labels.Set{"plumbline.io/release": "another"})
		if selector.Matches(others) {
			t.Errorf("it selects %v, which another release's canary fits, too: %v", wanted, others)
		}
	}
}

// TestMetricRelabelings checks that each endpoint of the chart's PodMonitors has the relabelings that the value gives.
func TestMetricRelabelings(t *testing.T) {
	seen := 0
	for _, o := range render(t, slices.Concat(matrix["canaries"], matrix["every program"], matrix["dropped metrics"])...) {
		if o.GetKind() != "PodMonitor" {
			continue
		}
		endpoints, _, _ := unstructured.NestedSlice(o.Object, "spec", "podMetricsEndpoints")
		for _, e := range endpoints {
			seen++
			if given, _, _ := unstructured.NestedSlice(e.(map[string]any), "metricRelabelings"); len(given) != 1 || given[0].(map[string]any)["regex"] != "go_.*" {
				t.Errorf("%s has the relabelings %v", o.GetName(), given)
			}
		}
	}
	if want := 7 + foreignMonitors(); seen != want {
		t.Errorf("%d endpoints, want %d", seen, want)
	}
}
