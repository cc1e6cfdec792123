package chart

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// account is an exporter's service account and what the exporter lists with it.
type account struct {
	namespace, name string
	program         string
	args            []string
	role            string // the kind and name of what gives it its rights
	resources       []string
}

var programs = []account{
	{"plumbline-node", "plumbline-agent", "plumbline-agent", []string{"--kubernetes", "--no-collector.query", "--no-collector.replica"},
		"ClusterRole/plumbline-agent", []string{"persistentvolumes", "pods", "storageclasses"}},
	{"plumbline", "longhorn-exporter", "longhorn_exporter", []string{"--kubernetes", "--no-collector.engine", "--no-collector.replica"},
		"Role/plumbline-longhorn-exporter", []string{"volumes", "replicas", "nodes", "instancemanagers"}},
	{"plumbline-node", "longhorn-node-exporter", "longhorn_exporter", []string{"--kubernetes", "--kubernetes.node=n", "--no-collector.volume", "--no-collector.node"},
		"Role/plumbline-longhorn-node-exporter", []string{"engines", "replicas", "instancemanagers"}},
	{"plumbline", "openebs-exporter", "openebs_exporter", []string{"--kubernetes"},
		"ClusterRole/plumbline-openebs-exporter", []string{"persistentvolumes", "nodes", "lvmvolumes", "zfsvolumes"}},
}

// accounts runs each exporter with a token of the service account that the chart makes for it: it can list all it
// needs, needs all it is allowed, and can do nothing else.
func accounts(t *testing.T, s *kubetest.Server) {
	s.Namespace("plumbline")
	s.Namespace("plumbline-node")
	s.Namespace("longhorn-system")
	values := []string{registry, "nodeNamespace=plumbline-node", "longhorn.enabled=true", "openebs.enabled=true", "rules.enabled=false", "dashboards.enabled=false"}
	all := render(t, values...)
	_, must := helm(t, s, "plumbline")
	must(append([]string{"install", "plumbline", chart(t)}, sets(values)...)...)
	t.Cleanup(func() { must("uninstall", "plumbline") })
	for _, a := range programs {
		t.Run(a.name, func(t *testing.T) {
			token := s.In(t).Token(a.namespace, a.name)
			e := startExporter(t, a, s.In(t).Kubeconfig(token))
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.synced(a.resources, nil) })
			refused(t, s, token)
		})
	}
	t.Run("each right is needed", func(t *testing.T) {
		s := s.In(t)
		for _, a := range programs {
			kind, name, _ := strings.Cut(a.role, "/")
			spoilt := find(t, all, kind, name).DeepCopy()
			rules, _, _ := unstructured.NestedSlice(spoilt.Object, "rules")
			var lost []string
			for _, r := range rules {
				rule := r.(map[string]any)
				names := rule["resources"].([]any)
				lost = append(lost, fmt.Sprint(names[0]))
				rule["resources"] = append([]any{"configmaps"}, names[1:]...)
			}
			if err := unstructured.SetNestedSlice(spoilt.Object, rules, "rules"); err != nil {
				t.Fatal(err)
			}
			s.Apply(spoilt)
			e := startExporter(t, a, s.Kubeconfig(s.Token(a.namespace, a.name)))
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { return e.synced(a.resources, lost) })
			s.Apply(find(t, all, kind, name))
		}
	})
}

// refused checks that the holder of a token can neither read secrets, change volumes nor make
// pods.
func refused(t *testing.T, s *kubetest.Server, token string) {
	t.Helper()
	config := rest.AnonymousClientConfig(s.Config)
	config.BearerToken = token
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	resource := func(name string) dynamic.NamespaceableResourceInterface {
		return client.Resource(schema.GroupVersionResource{Version: "v1", Resource: name})
	}
	ctx := context.Background()
	_, secrets := resource("secrets").List(ctx, metav1.ListOptions{})
	_, pods := resource("pods").Namespace("plumbline").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"name": "x"}}}, metav1.CreateOptions{})
	volume := resource("persistentvolumes").Delete(ctx, "x", metav1.DeleteOptions{})
	for what, err := range map[string]error{"list secrets": secrets, "create pods": pods, "delete volumes": volume} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("may it %s? the server answers %v", what, err)
		}
	}
}

type exporter struct{ url string }

// startExporter runs an exporter until the test ends.
func startExporter(t *testing.T, a account, kubeconfig string) exporter {
	t.Helper()
	return startProgram(t, a.program, append([]string{"--kubernetes.kubeconfig=" + kubeconfig}, a.args...)...)
}

// startProgram runs a program that has metrics until the test ends.
func startProgram(t *testing.T, program string, args ...string) exporter {
	t.Helper()
	address := testkit.FreeAddress(t)
	cmd := exec.Command(testkit.Tool(t, program), append(args, "--web.listen-address="+address)...)
	log, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s printed:\n%s", program, text)
		}
	})
	return exporter{"http://" + address + "/metrics"}
}

// synced is nil once all resources are listed but the lost ones, which are forbidden.
func (e exporter) synced(resources, lost []string) error {
	families, err := e.scrape()
	if err != nil {
		return err
	}
	without := map[string]bool{}
	for _, r := range lost {
		without[r] = true
	}
	for _, r := range resources {
		synced := value(families["plumbline_kubernetes_synced"], "resource", r)
		forbidden := value(families["plumbline_kubernetes_errors_total"], "resource", r, "reason", "forbidden")
		switch {
		case synced == nil || forbidden == nil:
			return fmt.Errorf("%s is not followed", r)
		case without[r] && (*synced != 0 || *forbidden == 0):
			return fmt.Errorf("%s without leave: synced %v, forbidden %v times", r, *synced, *forbidden)
		case !without[r] && (*synced != 1 || *forbidden != 0):
			return fmt.Errorf("%s: synced %v, forbidden %v times", r, *synced, *forbidden)
		}
	}
	return nil
}

func (e exporter) scrape() (map[string]*dto.MetricFamily, error) {
	client := http.Client{Timeout: testkit.DefaultTimeout}
	response, err := client.Get(e.url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s", response.Status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(response.Body)
}

// value returns the value of the series with the given labels.
func value(family *dto.MetricFamily, labels ...string) *float64 {
	for _, m := range family.GetMetric() {
		matching := 0
		for _, l := range m.GetLabel() {
			for i := 0; i < len(labels); i += 2 {
				if l.GetName() == labels[i] && l.GetValue() == labels[i+1] {
					matching++
				}
			}
		}
		if matching == len(labels)/2 {
			v := m.GetGauge().GetValue() + m.GetCounter().GetValue()
			return &v
		}
	}
	return nil
}
