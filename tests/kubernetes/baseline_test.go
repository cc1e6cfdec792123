package kubernetes_test

import (
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestBaseline pins by the baseline's own service account on a real API server: it writes its objects and
// nothing else, keeps the previous pins, and an apply of the manifests leaves the pins alone.
func TestBaseline(t *testing.T) {
	t.Parallel()
	s := kubetest.Start(t)
	s.ApplyCRDs(kubetest.ModuleCRDs(t, "prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml")...)
	objects := overlay(t, []string{manifests("databases", "local-path")}, nil)
	namespaces(s, objects)
	apply := func() {
		for _, o := range objects {
			switch o.GetKind() {
			case "ServiceAccount", "Role", "RoleBinding", "PrometheusRule":
				s.Apply(o)
			}
		}
	}
	apply()
	const namespace, name = "db-local-path", "plumbline-baseline-postgresql"
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = s.Token(namespace, "baseline")
	pin := func(name string, p95 float64) error {
		r := result.Result{Tool: "canary", Profile: "tpcb-like", TargetRate: 10, Completed: 6000,
			Response: result.Latency{Quantiles: []result.Quantile{{Q: 0.5, Value: p95 / 2}, {Q: 0.95, Value: p95}}}}
		return baseline.Output{Version: "v", History: 5, RefuseSlower: 0.15}.ToPrometheusRule(t.Context(), config, namespace+"/"+name,
			[]baseline.Baseline{{StorageClass: "local-path", Server: "db-local-path/postgresql-local-path", Result: r}}, time.Now())
	}
	if err := baseline.Reach(t.Context(), config, namespace+"/"+name); err != nil {
		t.Fatal(err)
	}
	for _, p95 := range []float64{0.004, 0.003} {
		if err := pin(name, p95); err != nil {
			t.Fatal(err)
		}
	}
	if err := pin(name, 0.009); err == nil || !strings.Contains(err.Error(), "3.000 ms are pinned") {
		t.Errorf("a pin three times as slow gave %v", err)
	}
	apply()
	client, err := dynamic.NewForConfig(s.Config)
	if err != nil {
		t.Fatal(err)
	}
	rules := schema.GroupVersionResource{Group: "monitoring.coreos.com", Version: "v1", Resource: "prometheusrules"}
	object, err := client.Resource(rules).Namespace(namespace).Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	groups, _, _ := unstructured.NestedSlice(object.Object, "spec", "groups")
	if len(groups) != 1 || !strings.Contains(object.GetAnnotations()["plumbline.io/previous"], "vector(0.004)") {
		t.Errorf("after an apply of the manifests there are %v, before them %s", groups, object.GetAnnotations()["plumbline.io/previous"])
	}
	// Only these objects, and only changed.
	other := object.DeepCopy()
	other.SetName("somebody-elses")
	other.SetResourceVersion("")
	if _, err := client.Resource(rules).Namespace(namespace).Create(t.Context(), other, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := pin("somebody-elses", 0.001); !apierrors.IsForbidden(err) {
		t.Errorf("somebody else's rules: %v", err)
	}
	if err := pin("not-there", 0.001); err == nil {
		t.Error("an object that is not there was written")
	}
	own, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := own.Resource(rules).Namespace(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the pins could be deleted: %v", err)
	}
	refused(t, s, config.BearerToken)
}
