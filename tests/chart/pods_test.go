package chart

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
	all := map[string]core.PodSpec{}
	for _, o := range render(t, values...) {
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

// everyPod are the pods of all that the chart can start, with more values: three on each node, two exporters, two
// canaries, two baselines and the test's.
func everyPod(t *testing.T, more ...string) map[string]core.PodSpec {
	t.Helper()
	all := pods(t, slices.Concat(matrix["baselines"], matrix["every program"], more)...)
	if len(all) != 11 {
		t.Errorf("%d kinds of pods, want three on each node, two exporters, the events, two canaries, two baselines and the test: %v", len(all), slices.Sorted(maps.Keys(all)))
	}
	return all
}

// TestUsersOnOpenShift checks that only the pods that SecurityContextConstraints of the chart are for name a user: all
// others are under restricted-v2, which gives each one of its namespace's range and refuses another.
func TestUsersOnOpenShift(t *testing.T) {
	objects := render(t, slices.Concat(matrix["every program"], matrix["openshift"])...)
	accounts, _, _ := unstructured.NestedStringSlice(find(t, objects, "SecurityContextConstraints", "plumbline-node").Object, "users")
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

// TestPlacement checks that every pod is started on Linux, also where an older chart's values are reused, and that the
// value placement is for those that are there once for the cluster, and for all of these.
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

// TestHardening checks what no security level requires: no container is privileged, each drops all capabilities, cannot
// write to its root, and has requests and a limit of memory; what is mounted of the host is mounted read-only, and a
// file system that the node mounts or unmounts below it later is seen.
func TestHardening(t *testing.T) {
	mounted := 0
	for name, pod := range everyPod(t) {
		host := map[string]bool{}
		for _, v := range pod.Volumes {
			host[v.Name] = v.HostPath != nil
		}
		for _, c := range pod.Containers {
			s := c.SecurityContext
			switch {
			case s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Drop, []core.Capability{"ALL"}):
				t.Errorf("%s does not drop all capabilities", name)
			case s.Privileged != nil && *s.Privileged:
				t.Errorf("%s is privileged", name)
			case s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation:
				t.Errorf("%s may gain privileges", name)
			case s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem:
				t.Errorf("%s can write to its root", name)
			}
			if pod.SecurityContext == nil || pod.SecurityContext.SeccompProfile == nil || pod.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault {
				t.Errorf("%s runs without the runtime's seccomp profile", name)
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("%s has the resources %v", name, c.Resources)
			}
			for _, m := range c.VolumeMounts {
				if !host[m.Name] {
					continue
				}
				mounted++
				if !m.ReadOnly || m.MountPropagation == nil || *m.MountPropagation != core.MountPropagationHostToContainer {
					t.Errorf("%s mounts %s of the host, not read-only or without the mountPropagation HostToContainer", name, m.Name)
				}
			}
		}
	}
	if mounted == 0 {
		t.Error("nothing mounts a path of the host's")
	}
}

// startsIn is how long a program may take until it listens, on a node without CPU to spare.
const startsIn = 5 * time.Minute

// TestStartup checks that the kubelet does not end a program which loads programs into the kernel before it has
// started: these listen only when all are loaded.
func TestStartup(t *testing.T) {
	all := pods(t, registry)
	for _, name := range []string{"DaemonSet/plumbline-agent", "DaemonSet/plumbline-blockio"} {
		c := all[name].Containers[0]
		switch startup := c.StartupProbe; {
		case c.LivenessProbe == nil:
			t.Errorf("%s has no livenessProbe", name)
		case startup == nil:
			t.Errorf("%s has no startupProbe", name)
		case !reflect.DeepEqual(startup.ProbeHandler, c.LivenessProbe.ProbeHandler):
			t.Errorf("%s: its startupProbe tries something else than its livenessProbe", name)
		default:
			if d := time.Duration(startup.PeriodSeconds) * time.Second * time.Duration(startup.FailureThreshold); d < startsIn {
				t.Errorf("%s: its startupProbe gives it %s, want %s", name, d, startsIn)
			}
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

// TestMemoryLimits checks that Go's limit of each program that has one is a value: the resources' limit alone changes
// nothing for it. Where the value is missing, as an older chart's are that are reused, it is the usual one.
func TestMemoryLimits(t *testing.T) {
	given, missing := slices.Clone(matrix["every program"]), slices.Clone(matrix["every program"])
	want := map[string]string{}
	for name, value := range map[string]string{"DaemonSet/plumbline-agent": "agent", "DaemonSet/plumbline-blockio": "blockio", "Deployment/longhorn-exporter": "longhorn",
		"DaemonSet/longhorn-node-exporter": "longhorn.node", "Deployment/openebs-exporter": "openebs", "Deployment/plumbline-events": "verdict"} {
		want[name] = fmt.Sprintf("%dMiB", 1000+len(want))
		given = append(given, value+".memoryLimit="+want[name])
		missing = append(missing, value+".memoryLimit=null")
	}
	if got := memoryLimits(t, given...); !maps.Equal(got, want) {
		t.Errorf("GOMEMLIMIT is %v, want %v", got, want)
	}
	if got, usual := memoryLimits(t, missing...), memoryLimits(t, matrix["every program"]...); !maps.Equal(got, usual) {
		t.Errorf("without values GOMEMLIMIT is %v, want %v", got, usual)
	}
}
