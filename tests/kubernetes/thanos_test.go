package kubernetes_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/testkit"
)

// What several of Thanos' manifests say is the same in each: the version, which is the one that make e2e-distributed runs,
// the receivers of the ring, and who asks whom.
func TestThanos(t *testing.T) {
	objects, err := render(manifests("thanos"))
	if err != nil {
		t.Fatal(err)
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
		var said []string
		switch o.GetKind() {
		case "StatefulSet", "Deployment":
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			image, _, _ = unstructured.NestedString(containers[0].(map[string]any), "image")
			said, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		case "ThanosRuler":
			image, _, _ = unstructured.NestedString(o.Object, "spec", "image")
			said, _, _ = unstructured.NestedStringSlice(o.Object, "spec", "queryEndpoints")
		default:
			continue
		}
		workloads++
		if want := "registry.invalid/thanos:" + string(pinned[1]); image != want {
			t.Errorf("%s has image %s, want %s", o.GetName(), image, want)
		}
		for _, one := range said {
			// The operator makes the rulers' service.
			if m := addresses.FindStringSubmatch(one); m != nil && !services[m[1]] && m[1] != "thanos-ruler-operated" {
				t.Errorf("%s asks %s, which is no service", o.GetName(), one)
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
	rules := 0
	for _, o := range objects {
		if o.GetKind() == "PrometheusRule" {
			rules++
			if o.GetLabels()["app.kubernetes.io/part-of"] != "plumbline" || o.GetNamespace() != "plumbline-thanos" {
				t.Errorf("the ruler does not select %s/%s", o.GetNamespace(), o.GetName())
			}
		}
	}
	files, _ := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	if rules != len(files) || rules == 0 {
		t.Errorf("%d rules of %d", rules, len(files))
	}
}
