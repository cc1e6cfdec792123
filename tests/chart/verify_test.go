package chart

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/rules/why/whytest"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

var podResource = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// chained is a recorded lab with all that the chain from a statement to its claim needs.
func chained() *whytest.Recording {
	lab := whytest.Healthy()
	lab.More = func(r *whytest.Recording) {
		r.Gauge(`plumbline_feature_available{node="n",feature="statements"}`, 1)
		for class := range lab.Commit {
			r.Gauge(fmt.Sprintf(`plumbline_server_info{node="n",server=%q,db_system="postgresql"}`, class), 1)
			r.Gauge(fmt.Sprintf(`plumbline_server_volume_info{node="n",server=%q,db_system="postgresql",device="dev-%s",volume="v-%s",purpose="data"}`, class, class, class), 1)
		}
	}
	return lab.Record()
}

// verify runs `helm test` on a real API server. This test is the kubelet: it runs the pod's program with the pod's
// arguments, and its end is the pod's.
func verify(t *testing.T, s *kubetest.Server) {
	program := filepath.Join(t.TempDir(), "kubectl-plumbline")
	if text, err := exec.Command("go", "build", "-o", program, "github.com/plumbline/plumbline/manifests/kubectl-plumbline").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	whole := httptest.NewServer(chained().Handler(nil))
	defer whole.Close()
	noRules := chained()
	noRules.Without("server:volume:info")
	broken := httptest.NewServer(noRules.Handler(nil))
	defer broken.Close()

	// The level that a namespace of ours should have where the programs on the nodes have one of their own.
	s.Apply(&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "verify",
		"labels": map[string]any{"pod-security.kubernetes.io/enforce": "restricted"}}}})
	s.Namespace("node")
	pods := s.Client.Resource(podResource).Namespace("verify")
	run, must := helm(t, s, "verify")
	install := func(url string) {
		t.Helper()
		must("upgrade", "--install", "plumbline", chart(t), "--set="+registry, "--set=nodeNamespace=node", "--set=prometheus.operator=false",
			"--set=dashboards.enabled=false", "--set=rules.enabled=false", "--set=test.wait=0s", "--set=prometheus.url="+url)
	}
	// test runs helm test, and what a kubelet would meanwhile; it returns the output of the pod's program.
	test := func() (output string, err error) {
		t.Helper()
		var wait sync.WaitGroup
		wait.Go(func() { _, err = run("test", "plumbline", "--timeout=1m") })
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			o, err := pods.Get(context.Background(), "plumbline-test", metav1.GetOptions{})
			if err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(o.Object, "status", "phase"); phase != "Pending" {
				return fmt.Errorf("the last test's pod, which is %s", phase)
			}
			if token, found, _ := unstructured.NestedBool(o.Object, "spec", "automountServiceAccountToken"); token || !found {
				t.Error("the test has an account's token")
			}
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "containers")
			args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			if err != nil {
				return err
			}
			cmd := exec.Command(program, args...)
			cmd.Env = []string{"HOME=/nonexistent"}
			out, end := cmd.CombinedOutput()
			output = string(out)
			phase := "Succeeded"
			var exit *exec.ExitError
			if errors.As(end, &exit) {
				phase = "Failed"
			} else if end != nil {
				t.Errorf("the pod's program: %v", end)
			}
			if err := unstructured.SetNestedField(o.Object, phase, "status", "phase"); err != nil {
				return err
			}
			_, err = pods.UpdateStatus(context.Background(), o, metav1.UpdateOptions{})
			return err
		})
		wait.Wait()
		return output, err
	}

	install(broken.URL)
	output, err := test()
	if err == nil || !strings.Contains(output, "MISSING  join") || !strings.Contains(output, "What to do next") {
		t.Errorf("without the rules: %v\n%s", err, output)
	}
	if _, err := pods.Get(context.Background(), "plumbline-test", metav1.GetOptions{}); err != nil {
		t.Errorf("the pod of a test that failed: %v", err)
	}
	install(whole.URL)
	if output, err = test(); err != nil || !strings.Contains(output, "The chain is whole.") {
		t.Errorf("with all there is: %v\n%s", err, output)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if o, err := pods.Get(context.Background(), "plumbline-test", metav1.GetOptions{}); err == nil && o.GetDeletionTimestamp() == nil {
			return errors.New("the pod of a test that succeeded is kept")
		}
		return nil
	})
	must("uninstall", "plumbline")
}
