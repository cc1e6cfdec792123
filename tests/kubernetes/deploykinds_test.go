package kubernetes_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// TestDeployWithoutOperatorsKinds takes definitions of the Prometheus operator away: up needs those of what it applies, and down
// none.
func TestDeployWithoutOperatorsKinds(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.Namespace("longhorn-system")
	d.undefine("servicemonitors.monitoring.coreos.com")
	d.up(manifests("deploy"))
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=longhorn"}, "up", "(missing: ServiceMonitor)")
	d.recorded("engines", "none")
	d.undefine("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	d.refused([]string{"REGISTRY=registry.example.org/plumbline"}, "up", "(missing: PodMonitor PrometheusRule)")

	// A release that brings them is installed when nothing of others is in the way, and not before.
	chart := filepath.Join(t.TempDir(), "operator")
	write(t, filepath.Join(chart, "Chart.yaml"), "{apiVersion: v2, name: operator, version: 1.0.0}")
	write(t, filepath.Join(chart, "templates", "c.yaml"), "{apiVersion: v1, kind: ConfigMap, metadata: {name: operator}}")
	for _, o := range kubetest.ModuleCRDs(t, "prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml") {
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(chart, "crds", o.GetName()+".yaml"), string(text))
	}
	role := parse(t, "{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: plumbline-openebs-exporter}}")
	d.Apply(role)
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=openebs", "STACK=operator", "CHART=" + chart}, "up", "nothing was changed:\nClusterRole plumbline-openebs-exporter\n")
	d.has(false, configMaps, "monitoring", "operator")
	d.Delete(role)
	d.up(manifests("deploy"), "ENGINES=openebs", "STACK=operator", "CHART="+chart)
	d.has(true, configMaps, "monitoring", "operator")
	d.has(true, podMonitors, "plumbline-node", "plumbline-agent")
	d.undefine("servicemonitors.monitoring.coreos.com", "podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	if text, err := d.deploy(nil, "down"); err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	d.has(false, daemonSets, "plumbline-node", "plumbline-agent")
	d.has(false, clusterRoles, "", "plumbline-agent")
	d.has(false, configMaps, "plumbline", "plumbline-deploy")
}

// undefine deletes definitions of kinds, and waits until they are gone.
func (d *deployment) undefine(names ...string) {
	d.t.Helper()
	for _, name := range names {
		if err := d.Client.Resource(definitions).Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			d.t.Fatal(err)
		}
		testkit.Eventually(d.t, time.Minute, func() error {
			if d.get(definitions, "", name) != nil {
				return fmt.Errorf("%s is still there", name)
			}
			return nil
		})
	}
}
