package chart

import (
	"context"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// events has the program write a verdict with the account that the chart makes for it, which may do nothing else;
// kubectl describe shows it on the claim and on the pod.
func events(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	s.Namespace("lab")
	_, must := helm(t, s, "plumbline")
	must("install", "plumbline", chart(t), "--set="+registry, "--set=verdict.events=true", "--set=rules.enabled=false", "--set=dashboards.enabled=false")
	t.Cleanup(func() { must("uninstall", "plumbline") })
	claim := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolumeClaim",
		"metadata": map[string]any{"name": "data-r3", "namespace": "lab"},
		"spec":     map[string]any{"accessModes": []any{"ReadWriteOnce"}, "resources": map[string]any{"requests": map[string]any{"storage": "1Gi"}}}}}
	pod := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "r3-pg", "namespace": "lab"},
		"spec": map[string]any{"containers": []any{map[string]any{"name": "postgres", "image": "i"}}}}}
	s.Apply(claim, pod)
	uid := func(resource, name string) string {
		o, err := s.Client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace("lab").Get(context.Background(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return string(o.GetUID())
	}
	lab := whytest.Healthy()
	lab.Trip["r3-2"], lab.Service["r3-2"], lab.Disk["r3-2"] = 40, 38, 36
	r := lab.Record()
	r.Without("plumbline_volume_info")
	r.Gauge(`plumbline_volume_info{node="n",device="dev-r3",volume="v-r3",namespace="lab",persistentvolumeclaim="data-r3",claim_uid="`+uid("persistentvolumeclaims", "data-r3")+`",storageclass="r3",backend="b",pod="r3-pg"}`, 1)
	r.Gauge(`plumbline_server_info{node="n",server="r3",namespace="lab",pod="r3-pg",pod_uid="`+uid("pods", "r3-pg")+`"}`, 1)
	r.Gauge(`volume:verdict:confidence{reason="replica",volume="v-r3",layer="disk",replica="r3-2",device="disk-r3-2",culprit_node="n"}`, 0.9)
	r.Gauge(`server:verdict:confidence{reason="replica",server="r3",node="n",volume="v-r3",layer="disk",replica="r3-2",device="disk-r3-2",culprit_node="n"}`, 0.9)
	prometheus := httptest.NewServer(r.Handler(nil))
	t.Cleanup(prometheus.Close)

	token := s.Token("plumbline", "plumbline-events")
	e := startProgram(t, "kubectl-plumbline", "events", "--kubeconfig="+s.Kubeconfig(token), "--prometheus-url="+prometheus.URL, "--interval=1s")
	for target, want := range map[string]string{"pvc data-r3": "kubectl plumbline why data-r3 -n lab", "pod r3-pg": "kubectl plumbline why pod/r3-pg -n lab"} {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			text, err := exec.Command(testkit.Tool(t, "kubectl"), append([]string{"--kubeconfig=" + s.Kubeconfig(s.Config.BearerToken), "--namespace=lab", "describe"}, strings.Fields(target)...)...).CombinedOutput()
			if err != nil {
				return err
			}
			_, shown, _ := strings.Cut(string(text), "Events:")
			for _, part := range []string{"Warning", "ReplicaSlow", "plumbline", "r3-2", "36 ms", want} {
				if !strings.Contains(shown, part) {
					return fmt.Errorf("describe %s shows no %q:\n%s", target, part, shown)
				}
			}
			return nil
		})
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { // the server has an event a little before it is counted
		families, err := e.scrape()
		if err != nil {
			return err
		}
		if n := value(families["plumbline_events_written_total"], "reason", "ReplicaSlow"); n == nil || *n != 2 {
			return fmt.Errorf("it counts %v events, want 2", n)
		}
		return nil
	})

	refused(t, s, token)
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = token
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	all := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "events"}).Namespace("lab")
	if _, err := all.List(context.Background(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("may it read events? the server answers %v", err)
	}
	if err := all.Delete(context.Background(), "x", metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("may it delete events? the server answers %v", err)
	}
}
