package chart

import (
	"context"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/kubetest"
)

// pins installs two canaries and what pins them on a real API server: each account writes its own canary's pin and no
// other, upgrades and a rollback leave the pin as it was written, and uninstall removes it.
func pins(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	s.Apply(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop",
		"labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}}}})
	_, run := helm(t, s, "plumbline")
	values := []string{registry, "rules.enabled=false", "dashboards.enabled=false", "prometheus.release=stack",
		"canaries[0].name=orders", "canaries[0].namespace=shop", "canaries[0].database=shop/orders", "canaries[0].storageclass=fast", "canaries[0].dsnSecret.name=orders",
		"canaries[1].name=books", "canaries[1].namespace=shop", "canaries[1].database=shop/books", "canaries[1].storageclass=fast", "canaries[1].dsnSecret.name=books"}
	notes := run(append([]string{"install", "plumbline", chart(t)}, sets(values)...)...)
	advice := advised(t, notes)
	if len(advice) != 1 {
		t.Fatalf("the notes advise the upgrades %q, want one, to the baselines:\n%s", advice, notes)
	}
	run(advice[0]...)
	values = append(values, "baseline.enabled=true")

	pin := func(name string) error { return pinAs(t, s, "shop", "baseline-orders", name) }
	if err := pin("plumbline-baseline-orders"); err != nil {
		t.Fatal(err)
	}
	if err := pin("plumbline-baseline-books"); !apierrors.IsForbidden(err) {
		t.Errorf("another canary's pin: %v", err)
	}

	rules := s.Client.Resource(kinds["PrometheusRule"]).Namespace("shop")
	for _, change := range [][]string{
		append([]string{"upgrade", "plumbline", chart(t), "--set=image.tag=0.9.9"}, sets(values)...),
		{"upgrade", "plumbline", chart(t), "--reset-then-reuse-values", "--set=image.tag=0.9.10"},
		append([]string{"upgrade", "plumbline", chart(t), "--server-side=false", "--set=prometheus.labels.team=storage"}, sets(values)...),
		{"rollback", "plumbline", "2"},
	} {
		run(change...)
		object, err := rules.Get(context.Background(), "plumbline-baseline-orders", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if groups, _, _ := unstructured.NestedSlice(object.Object, "spec", "groups"); len(groups) != 1 || object.GetLabels()["release"] != "stack" ||
			!strings.Contains(object.GetAnnotations()["plumbline.io/measured"], "shop/orders") {
			t.Errorf("after %s: labels %v, %d groups", change[0], object.GetLabels(), len(groups))
		}
	}

	// A namespace of the level "restricted" takes the job's pods.
	job, err := s.Client.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "cronjobs"}).Namespace("shop").
		Get(context.Background(), "baseline-orders", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if suspended, _, _ := unstructured.NestedBool(job.Object, "spec", "suspend"); !suspended {
		t.Error("the schedule runs although it is not enabled")
	}
	pod, _, _ := unstructured.NestedMap(job.Object, "spec", "jobTemplate", "spec", "template")
	pod["apiVersion"], pod["kind"] = "v1", "Pod"
	o := &unstructured.Unstructured{Object: pod}
	o.SetName("pin")
	o.SetNamespace("shop")
	if err := s.DryRun(o); err != nil {
		t.Error(err)
	}

	run("uninstall", "plumbline")
	if left := ours(t, s); len(left) != 0 {
		t.Errorf("left after uninstall: %v", left)
	}
}

// pinAs writes a pin with the token of an account, as the account's job would.
func pinAs(t *testing.T, s *kubetest.Server, namespace, account, name string) error {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = s.Token(namespace, account)
	r := result.Result{Tool: "canary", Profile: "tpcb-like", TargetRate: 10, Completed: 6000,
		Response: result.Latency{Quantiles: []result.Quantile{{Q: 0.5, Value: 0.002}, {Q: 0.95, Value: 0.004}}}}
	return baseline.Output{Version: "v", History: 5}.ToPrometheusRule(t.Context(), config, namespace+"/"+name,
		[]baseline.Baseline{{StorageClass: "fast", Database: "shop/orders", Result: r}}, time.Now())
}
