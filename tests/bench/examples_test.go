package bench

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

func example(elements ...string) string {
	return filepath.Join(append([]string{testkit.Root(), "manifests", "examples"}, elements...)...)
}

// files are the objects in an example's folder, as kubectl apply -f reads it.
func files(t *testing.T, name string) map[string][]*unstructured.Unstructured {
	t.Helper()
	paths, err := filepath.Glob(example(name, "*.yaml"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("examples of %s: %q, %v", name, paths, err)
	}
	all := map[string][]*unstructured.Unstructured{}
	for _, path := range paths {
		all[filepath.Base(path)] = kubetest.Read(t, path)
	}
	return all
}

// examples has the server check each object of the examples strictly, and the values for kube-prometheus-stack.
func examples(t *testing.T, s *kubetest.Server) {
	for file, objects := range files(t, "storage-classes") {
		if len(objects) != 1 || objects[0].GetKind() != "StorageClass" || objects[0].GetName()+".yaml" != file {
			t.Errorf("%s does not have the one StorageClass of its name", file)
		}
		if err := s.DryRun(objects[0]); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	later := files(t, "storage-classes")["longhorn-r3.yaml"][0]
	later.Object["volumeBindingMode"] = "Later"
	if err := s.DryRun(later); err == nil || !strings.Contains(err.Error(), "volumeBindingMode") {
		t.Errorf("a class of a wrong binding mode: %v", err)
	}
	const space = "plumbline-thanos"
	thanos := files(t, "thanos")
	s.Apply(thanos["namespace.yaml"]...)
	for file, objects := range thanos {
		for _, o := range objects {
			if o.GetKind() == "Namespace" {
				continue
			}
			o.SetNamespace(space) // as with kubectl --namespace
			if err := s.DryRun(o); err != nil {
				t.Errorf("%s: %s %s: %v", file, o.GetKind(), o.GetName(), err)
			}
			pod := podOf(t, o)
			if pod == nil {
				continue
			}
			pod.Spec.NodeSelector = map[string]string{"kubernetes.io/os": "linux"} // Thanos' images name their platforms
			if err := careful(o, pod, false); err != nil {
				t.Errorf("%s: %v", file, err)
			}
			made, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
			if err != nil {
				t.Fatal(err)
			}
			delete(made, "status")
			if err := s.DryRun(&unstructured.Unstructured{Object: made}); err != nil {
				t.Errorf("the pod of %s: %v", file, err)
			}
		}
	}
	stack(t, s)
}

// stack checks the values for kube-prometheus-stack as far as they are fields of the objects that the chart makes of
// them; the chart itself is in no package registry.
func stack(t *testing.T, s *kubetest.Server) {
	folder := filepath.Join(testkit.Root(), "manifests", "kube-prometheus-stack")
	required, recommended := readValues(t, filepath.Join(folder, "required.yaml")), readValues(t, filepath.Join(folder, "recommended.yaml"))
	s.Namespace("monitoring")
	spec, ok, err := unstructured.NestedMap(recommended, "prometheus", "prometheusSpec")
	if err != nil || !ok {
		t.Fatalf("no prometheusSpec: %v", err)
	}
	least, ok, err := unstructured.NestedMap(required, "prometheus", "prometheusSpec")
	if err != nil || !ok {
		t.Fatalf("no prometheusSpec: %v", err)
	}
	maps.Copy(spec, least)
	for _, chart := range []string{"rule", "podMonitor", "serviceMonitor", "probe", "scrapeConfig"} {
		key := chart + "SelectorNilUsesHelmValues"
		if spec[key] != false {
			t.Errorf("%s is %v", key, spec[key])
		}
		delete(spec, key)
	}
	spec["storage"] = spec["storageSpec"]
	delete(spec, "storageSpec")
	prometheus := func(spec map[string]any) error {
		return s.DryRun(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "monitoring.coreos.com/v1", "kind": "Prometheus",
			"metadata": map[string]any{"name": "stack", "namespace": "monitoring"}, "spec": spec}})
	}
	if err := prometheus(spec); err != nil {
		t.Errorf("prometheusSpec: %v", err)
	}
	thanos := readValues(t, example("thanos", "values", "kube-prometheus-stack.yaml"))
	spec, _, err = unstructured.NestedMap(thanos, "prometheus", "prometheusSpec")
	if err == nil {
		err = prometheus(spec)
	}
	if err != nil {
		t.Errorf("prometheusSpec of a cluster whose data goes to Thanos: %v", err)
	}
	endpoint := func(values map[string]any, path ...string) any {
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
			"relabelings":       endpoint(required, "prometheus-node-exporter", "prometheus", "monitor", "relabelings"),
			"metricRelabelings": endpoint(recommended, "kubelet", "serviceMonitor", "cAdvisorMetricRelabelings"),
		}}},
	}}
	if err := s.DryRun(monitor); err != nil {
		t.Errorf("relabelings: %v", err)
	}
}

func readValues(t *testing.T, path string) (values map[string]any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.UnmarshalStrict(text, &values)
	}
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// What several of Thanos' manifests have is the same in each: the version, which is the one that make e2e-distributed
// runs, the receivers of the ring, and the endpoints that queriers and rulers query. The rulers select the rules that
// the chart makes there.
func TestThanos(t *testing.T) {
	var objects []*unstructured.Unstructured
	for _, file := range files(t, "thanos") {
		objects = append(objects, file...)
	}
	pins, err := os.ReadFile(filepath.Join(testkit.Root(), "tools", "thanos", "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	pinned := regexp.MustCompile(`github.com/thanos-io/thanos (v[0-9.]+)`).FindSubmatch(pins)
	if pinned == nil {
		t.Fatal("tools/thanos/go.mod does not require Thanos")
	}
	services := map[string]bool{}
	for _, o := range objects {
		if o.GetKind() == "Service" {
			services[o.GetName()] = true
		}
	}
	addresses := regexp.MustCompile(`(?:^|[/.=])([a-z-]+)\.plumbline-thanos\.svc`)
	workloads := 0
	for _, o := range objects {
		var image string
		var given []string
		switch o.GetKind() {
		case "StatefulSet", "Deployment":
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			image, _, _ = unstructured.NestedString(containers[0].(map[string]any), "image")
			given, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		case "ThanosRuler":
			image, _, _ = unstructured.NestedString(o.Object, "spec", "image")
			given, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "queryEndpoints")
		default:
			continue
		}
		workloads++
		if want := "thanosio/thanos:" + string(pinned[1]); image != want {
			t.Errorf("%s has image %s, want %s", o.GetName(), image, want)
		}
		for _, one := range given {
			// The operator makes the rulers' service.
			if m := addresses.FindStringSubmatch(one); m != nil && !services[m[1]] && m[1] != "thanos-ruler-operated" {
				t.Errorf("%s queries %s, which is no service", o.GetName(), one)
			}
		}
	}
	if workloads != 6 {
		t.Errorf("%d workloads, want 6", workloads)
	}
	text, _, _ := unstructured.NestedString(find(t, objects, "ConfigMap", "hashring").Object, "data", "hashring.json")
	var ring []struct{ Endpoints []string }
	if err := json.Unmarshal([]byte(text), &ring); err != nil || len(ring) != 1 {
		t.Fatalf("the ring: %v", err)
	}
	receivers, _, _ := unstructured.NestedInt64(find(t, objects, "StatefulSet", "receive").Object, "spec", "replicas")
	var want []string
	for i := range receivers {
		want = append(want, fmt.Sprintf("receive-%d.receive.plumbline-thanos.svc:10901", i))
	}
	if !slices.Equal(ring[0].Endpoints, want) {
		t.Errorf("the ring has %q, want %q", ring[0].Endpoints, want)
	}

	for _, name := range []string{"rules.yaml", "plumbline.yaml"} {
		kind, _, _ := unstructured.NestedString(readValues(t, example("thanos", "values", name)), "prometheus", "histograms")
		if kind != "either" {
			t.Errorf("%s has the rules for histograms of the kind %q", name, kind)
		}
	}
	// The checkout has the rules of the native kind alone.
	rendered, err := kubetest.Helm(t, nil, "template", "plumbline-rules", filepath.Join(testkit.Root(), "manifests", "chart"), "--namespace=plumbline-thanos",
		"--values="+example("thanos", "values", "rules.yaml"), "--set=prometheus.histograms=native")
	if err != nil {
		t.Fatal(rendered)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, []byte(rendered), 0o644); err != nil {
		t.Fatal(err)
	}
	selector, _, _ := unstructured.NestedStringMap(find(t, objects, "ThanosRuler", "plumbline").Object, "spec", "ruleSelector", "matchLabels")
	rules := 0
	for _, o := range kubetest.Read(t, file) {
		switch o.GetKind() {
		case "PrometheusRule":
			rules++
			if len(selector) == 0 || !includes(o.GetLabels(), selector) || o.GetNamespace() != "plumbline-thanos" {
				t.Errorf("the ruler does not select %s/%s", o.GetNamespace(), o.GetName())
			}
		case "ConfigMap":
		default:
			t.Errorf("beside rules and dashboards there is %s %s", o.GetKind(), o.GetName())
		}
	}
	if all, _ := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml")); rules != len(all) || rules == 0 {
		t.Errorf("%d rules of %d", rules, len(all))
	}
}
