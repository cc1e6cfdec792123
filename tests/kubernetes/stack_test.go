package kubernetes_test

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// stack checks the values for kube-prometheus-stack as far as they are fields of the objects
// that the chart makes of them; the chart itself is in no package registry.
func stack(t *testing.T, s *kubetest.Server) {
	text, err := os.ReadFile(manifests("kube-prometheus-stack", "values.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	s.Namespace("monitoring")
	spec, ok, err := unstructured.NestedMap(values, "prometheus", "prometheusSpec")
	if err != nil || !ok {
		t.Fatalf("no prometheusSpec: %v", err)
	}
	for _, chart := range []string{"rule", "podMonitor", "serviceMonitor", "probe", "scrapeConfig"} {
		key := chart + "SelectorNilUsesHelmValues"
		if spec[key] != false {
			t.Errorf("%s is %v", key, spec[key])
		}
		delete(spec, key)
	}
	spec["storage"] = spec["storageSpec"]
	delete(spec, "storageSpec")
	prometheus := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus",
		"metadata": map[string]any{"name": "stack", "namespace": "monitoring"}, "spec": spec,
	}}
	if err := s.DryRun(prometheus); err != nil {
		t.Errorf("prometheusSpec: %v", err)
	}
	endpoint := func(path ...string) any {
		list, ok, err := unstructured.NestedSlice(values, path...)
		if err != nil || !ok {
			t.Fatalf("%v: %v", path, err)
		}
		return list
	}
	monitor := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor",
		"metadata": map[string]any{"name": "stack", "namespace": "monitoring"},
		"spec": map[string]any{"selector": map[string]any{}, "endpoints": []any{map[string]any{
			"port":              "metrics",
			"relabelings":       endpoint("prometheus-node-exporter", "prometheus", "monitor", "relabelings"),
			"metricRelabelings": endpoint("kubelet", "serviceMonitor", "cAdvisorMetricRelabelings"),
		}}},
	}}
	if err := s.DryRun(monitor); err != nil {
		t.Errorf("relabelings: %v", err)
	}
}
