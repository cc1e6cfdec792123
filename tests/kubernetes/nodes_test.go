package kubernetes_test

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestNodes checks that the programs on each node are started wherever they can run, and nowhere else.
func TestNodes(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"base", "engines/longhorn"} {
		objects, err := render(manifests(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() == "DaemonSet" {
				seen[o.GetName()] = true
				kubetest.CheckNodes(t, o)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the programs on each node are %v, want three", seen)
	}
}

// TestLinux checks that the pods of Plumbline's own images are started on Linux only: there are none for Windows.
func TestLinux(t *testing.T) {
	seen := 0
	for name, objects := range everything(t) {
		for _, o := range objects {
			pod := template(o)
			if pod == nil {
				continue
			}
			containers, _, _ := unstructured.NestedSlice(pod.Object, "spec", "containers")
			image, _, _ := unstructured.NestedString(containers[0].(map[string]any), "image")
			if !strings.HasPrefix(image, "registry.invalid/plumbline/") {
				continue
			}
			seen++
			if selector, _, _ := unstructured.NestedStringMap(pod.Object, "spec", "nodeSelector"); selector[core.LabelOSStable] != "linux" {
				t.Errorf("%s: %s %s is started on any system: its node selector is %v", name, o.GetKind(), o.GetName(), selector)
			}
		}
	}
	if seen < 150 { // 13 for each storage class
		t.Errorf("only %d pods have an image of Plumbline's", seen)
	}
}
