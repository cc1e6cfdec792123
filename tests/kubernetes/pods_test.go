package kubernetes_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// template returns the pod that a workload would start, or nil if it is no workload.
func template(o *unstructured.Unstructured) *unstructured.Unstructured {
	path := []string{"spec", "template"}
	switch o.GetKind() {
	case "Deployment", "DaemonSet", "StatefulSet", "Job":
	case "CronJob":
		path = []string{"spec", "jobTemplate", "spec", "template"}
	default:
		return nil
	}
	found, ok, err := unstructured.NestedMap(o.Object, path...)
	if err != nil || !ok {
		return nil
	}
	pod := &unstructured.Unstructured{Object: found}
	pod.SetAPIVersion("v1")
	pod.SetKind("Pod")
	pod.SetName("the-pod-of-" + o.GetName())
	pod.SetNamespace(o.GetNamespace())
	// Claims by template become volumes of a set's pod.
	volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
	claims, _, _ := unstructured.NestedSlice(o.Object, "spec", "volumeClaimTemplates")
	for _, c := range claims {
		name, _, _ := unstructured.NestedString(c.(map[string]any), "metadata", "name")
		volumes = append(volumes, map[string]any{"name": name, "persistentVolumeClaim": map[string]any{"claimName": name}})
	}
	if len(volumes) > 0 {
		_ = unstructured.SetNestedSlice(pod.Object, volumes, "spec", "volumes")
	}
	return pod
}

// pods creates the pod of each workload, as a dry run: the API server checks pods against
// their namespace's security level, priority class and quota, but not what makes pods.
func pods(t *testing.T, s *kubetest.Server, all map[string][]*unstructured.Unstructured) {
	s.Apply(find(t, all["base"], "PriorityClass", "plumbline-node"))
	count := 0
	for _, name := range slices.Sorted(maps.Keys(all)) {
		for _, o := range all[name] {
			pod := template(o)
			if pod == nil {
				continue
			}
			count++
			if err := s.DryRun(pod); err != nil {
				t.Errorf("%s: %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
			if err := careful(pod); err != nil {
				t.Errorf("%s: %s %s: %v", name, o.GetKind(), o.GetName(), err)
			}
		}
	}
	if count < 80 {
		t.Errorf("only %d pods tried", count)
	}
	// The levels are in force: what looks at the node may not run elsewhere.
	agent := template(find(t, all["base"], "DaemonSet", "plumbline-agent"))
	agent.SetNamespace("plumbline")
	if err := s.DryRun(agent); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "restricted`) {
		t.Errorf("the agent in the restricted namespace: %v", err)
	}
	canary := template(find(t, all["databases/local-path"], "Deployment", "canary-postgresql"))
	_ = unstructured.SetNestedField(canary.Object, true, "spec", "hostPID")
	if err := s.DryRun(canary); err == nil || !strings.Contains(err.Error(), `violates PodSecurity "baseline`) {
		t.Errorf("a canary in the host's PID namespace: %v", err)
	}
}

// careful checks what no security level asks for.
func careful(pod *unstructured.Unstructured) error {
	containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
	for _, c := range containers {
		container := c.(map[string]any)
		name := container["name"]
		if privileged, _, _ := unstructured.NestedBool(container, "securityContext", "privileged"); privileged {
			return fmt.Errorf("container %s is privileged", name)
		}
		if drop, _, _ := unstructured.NestedStringSlice(container, "securityContext", "capabilities", "drop"); !slices.Equal(drop, []string{"ALL"}) {
			return fmt.Errorf("container %s does not drop all capabilities", name)
		}
		readOnly, _, _ := unstructured.NestedBool(container, "securityContext", "readOnlyRootFilesystem")
		if image, _ := container["image"].(string); strings.HasPrefix(image, "plumbline/") && !readOnly {
			return fmt.Errorf("container %s can write to its root", name)
		}
		for _, figure := range [][]string{{"requests", "cpu"}, {"requests", "memory"}, {"limits", "memory"}} {
			if _, ok, _ := unstructured.NestedString(container, append([]string{"resources"}, figure...)...); !ok {
				return fmt.Errorf("container %s has no %s", name, strings.Join(figure, "."))
			}
		}
		// Whatever is mounted from the host is mounted read-only.
		hostPaths := map[string]bool{}
		volumes, _, _ := unstructured.NestedSlice(pod.Object, "spec", "volumes")
		for _, v := range volumes {
			volume := v.(map[string]any)
			hostPaths[fmt.Sprint(volume["name"])] = volume["hostPath"] != nil
		}
		mounts, _, _ := unstructured.NestedSlice(container, "volumeMounts")
		for _, m := range mounts {
			mount := m.(map[string]any)
			if hostPaths[fmt.Sprint(mount["name"])] && mount["readOnly"] != true {
				return fmt.Errorf("container %s can write to the host through %s", name, mount["name"])
			}
		}
	}
	return nil
}
