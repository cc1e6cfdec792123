package chart

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// podPaths are where the kinds of the chart that start pods have these.
var podPaths = map[string][]string{
	"Pod":        {"spec"},
	"Deployment": {"spec", "template", "spec"},
	"DaemonSet":  {"spec", "template", "spec"},
	"CronJob":    {"spec", "jobTemplate", "spec", "template", "spec"},
}

// pods are the chart's with these values, by KIND/NAME of what starts each.
func pods(t *testing.T, values ...string) map[string]core.PodSpec {
	t.Helper()
	objects, text, err := template(t, values...)
	if err != nil {
		t.Fatal(text)
	}
	all := map[string]core.PodSpec{}
	for _, o := range objects {
		path, ok := podPaths[o.GetKind()]
		if !ok {
			continue
		}
		found, _, err := unstructured.NestedMap(o.Object, path...)
		if err != nil {
			t.Fatal(err)
		}
		var pod core.PodSpec
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found, &pod); err != nil {
			t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
		}
		all[o.GetKind()+"/"+o.GetName()] = pod
	}
	return all
}

// everyPod are the pods of all that the chart can start, with more values: three on each node, two exporters, two canaries, two baselines
// and the test's.
func everyPod(t *testing.T, more ...string) map[string]core.PodSpec {
	t.Helper()
	all := pods(t, slices.Concat(matrix["baselines"], matrix["every engine"], more)...)
	if len(all) != 10 {
		t.Errorf("%d kinds of pods, want three on each node, two exporters, two canaries, two baselines and the test: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	return all
}

// TestUsersOnOpenShift checks that only the pods that SecurityContextConstraints of the chart are for name a user: all others are
// under restricted-v2, which gives each one of its namespace's range and refuses another.
func TestUsersOnOpenShift(t *testing.T) {
	objects, text, err := template(t, slices.Concat(matrix["every engine"], matrix["openshift"])...)
	if err != nil {
		t.Fatal(text)
	}
	var accounts []string
	for _, o := range objects {
		if o.GetKind() == "SecurityContextConstraints" {
			accounts, _, _ = unstructured.NestedStringSlice(o.Object, "users")
		}
	}
	if len(accounts) != 3 {
		t.Fatalf("the accounts of the constraints are %q, want three", accounts)
	}
	for name, pod := range everyPod(t, matrix["openshift"]...) {
		if slices.ContainsFunc(accounts, func(a string) bool { return strings.HasSuffix(a, ":"+pod.ServiceAccountName) }) {
			continue
		}
		s := pod.SecurityContext
		if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot {
			t.Errorf("%s may be root", name)
			continue
		}
		if s.RunAsUser != nil || s.RunAsGroup != nil || s.FSGroup != nil {
			t.Errorf("%s names a user or a group", name)
		}
		for _, c := range pod.Containers {
			if c.SecurityContext != nil && (c.SecurityContext.RunAsUser != nil || c.SecurityContext.RunAsGroup != nil) {
				t.Errorf("%s: the container %s names a user or a group", name, c.Name)
			}
		}
	}
}

// TestPlacement checks that every pod is started on Linux, also where an older chart's values are reused, and that the value placement is
// for those that are there once for the cluster, and for all of these.
func TestPlacement(t *testing.T) {
	const class = "system-cluster-critical"
	for _, more := range [][]string{nil, {"placement=null"}} {
		for name, pod := range everyPod(t, more...) {
			if pod.NodeSelector[core.LabelOSStable] != "linux" {
				t.Errorf("with %q %s is started on any system: its node selector is %v", more, name, pod.NodeSelector)
			}
		}
	}
	for name, pod := range everyPod(t, matrix["placement"]...) {
		tolerates := slices.ContainsFunc(pod.Tolerations, func(t core.Toleration) bool { return t.Key == "infra" })
		apart := pod.Affinity != nil && pod.Affinity.PodAntiAffinity != nil
		every := pod.NodeSelector["pool"] == "infra" && pod.NodeSelector[core.LabelOSStable] == "linux" && pod.PriorityClassName == class && tolerates && apart
		some := pod.NodeSelector["pool"] != "" || pod.PriorityClassName == class || tolerates || apart
		if onNode := strings.HasPrefix(name, "DaemonSet/"); onNode && some || !onNode && !every {
			t.Errorf("%s: node selector %v, tolerations %v, class %q, affinity %v", name, pod.NodeSelector, pod.Tolerations, pod.PriorityClassName, pod.Affinity)
		}
	}
}

// memoryLimits are Go's limits of the programs that have one, with these values, by KIND/NAME of what starts each.
func memoryLimits(t *testing.T, values ...string) map[string]string {
	t.Helper()
	limits := map[string]string{}
	for name, pod := range pods(t, values...) {
		for _, e := range pod.Containers[0].Env {
			if e.Name == "GOMEMLIMIT" {
				limits[name] = e.Value
			}
		}
	}
	return limits
}

// TestMemoryLimits checks that Go's limit of each program that has one is a value: the resources' limit alone changes nothing for it. Where
// the value is missing, as an older chart's are that are reused, it is the usual one.
func TestMemoryLimits(t *testing.T) {
	given, missing := slices.Clone(matrix["every engine"]), slices.Clone(matrix["every engine"])
	want := map[string]string{}
	for name, value := range map[string]string{"DaemonSet/plumbline-agent": "agent", "DaemonSet/plumbline-blockio": "blockio", "Deployment/longhorn-exporter": "longhorn",
		"DaemonSet/longhorn-node-exporter": "longhorn.node", "Deployment/openebs-exporter": "openebs"} {
		want[name] = fmt.Sprintf("%dMiB", 1000+len(want))
		given = append(given, value+".memoryLimit="+want[name])
		missing = append(missing, value+".memoryLimit=null")
	}
	if got := memoryLimits(t, given...); !maps.Equal(got, want) {
		t.Errorf("GOMEMLIMIT is %v, want %v", got, want)
	}
	if got, usual := memoryLimits(t, missing...), memoryLimits(t, matrix["every engine"]...); !maps.Equal(got, usual) {
		t.Errorf("without values GOMEMLIMIT is %v, want %v", got, usual)
	}
}
