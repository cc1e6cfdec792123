package kubernetes_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/tests/testkit"
)

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// TestDeployWithoutOperatorsKinds takes definitions of the Prometheus operator away: up needs those of what it applies, and down
// none.
func TestDeployWithoutOperatorsKinds(t *testing.T) {
	d := newDeployment(t)
	d.Namespace("longhorn-system")
	d.undefine("servicemonitors.monitoring.coreos.com")
	d.up(manifests("deploy"))
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=longhorn"}, "up", "(missing: ServiceMonitor)")
	d.recorded("engines", "none")
	d.undefine("podmonitors.monitoring.coreos.com", "prometheusrules.monitoring.coreos.com")
	d.refused([]string{"REGISTRY=registry.example.org/plumbline"}, "up", "(missing: PodMonitor PrometheusRule)")
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
