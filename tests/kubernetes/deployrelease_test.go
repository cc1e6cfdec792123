package kubernetes_test

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// released fails unless an object has this label release; "" is none.
func (d *deployment) released(resource schema.GroupVersionResource, namespace, name, want string) {
	d.t.Helper()
	o := d.get(resource, namespace, name)
	if o == nil {
		d.t.Errorf("no %s %s/%s", resource.Resource, namespace, name)
		return
	}
	if got := o.GetLabels()["release"]; got != want {
		d.t.Errorf("%s %s/%s has the label release %q, want %q", resource.Resource, namespace, name, got, want)
	}
}

// warned returns what status says, and fails unless it warns of what no Prometheus takes, or does not.
func (d *deployment) warned(want bool) string {
	d.t.Helper()
	text, err := d.deploy(nil, "status")
	if err != nil {
		d.t.Fatalf("status: %v\n%s", err, text)
	}
	if got := strings.Contains(text, "WARNING: no Prometheus on this cluster takes these"); got != want {
		d.t.Errorf("status warns: %v, want %v:\n%s", got, want, text)
	}
	return text
}

// TestDeployRelease runs up beside the Prometheus of a kube-prometheus-stack, which takes only what has its release's label: without RELEASE status
// warns and says by what it selects; with it monitors and rules have the label, and nothing else has.
func TestDeployRelease(t *testing.T) {
	d := newDeployment(t)
	stack := func(namespaces string) {
		t.Helper()
		d.Apply(parse(t, fmt.Sprintf(`{apiVersion: monitoring.coreos.com/v1, kind: Prometheus, metadata: {name: stack, namespace: monitoring}, spec: {
  podMonitorSelector: {matchLabels: {release: stack}}, %s
  ruleSelector: {matchExpressions: [{key: release, operator: In, values: [stack, other]}]}, ruleNamespaceSelector: {}}}`, namespaces)))
	}
	d.up(manifests("deploy"))
	d.warned(false) // nothing of the operator's is there to take it
	d.Namespace("monitoring")
	stack("podMonitorNamespaceSelector: {},")
	says(t, d.warned(true), "podmonitors: 2 of 2, such as plumbline-node/plumbline-agent\n", "monitoring/stack takes those with release=stack\n", "prometheusrules: ",
		"monitoring/stack takes those with release in (stack,other)\n", "Run up with RELEASE")

	d.up(manifests("deploy"), "RELEASE=stack")
	d.recorded("release", "stack")
	d.warned(false)
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "stack")
	d.released(prometheusRules, "plumbline", "plumbline-stall", "stack")
	d.released(daemonSets, "plumbline-node", "plumbline-agent", "")
	says(t, d.up(manifests("deploy")), "RELEASE=stack, as recorded by the last up")
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "stack")

	// Without a selector for namespaces it looks into its own alone.
	stack("")
	text := d.warned(true)
	says(t, text, "podmonitors: 2 of 2", "monitoring/stack takes those with release=stack, in its own namespace\n")
	if strings.Contains(text, "prometheusrules: ") {
		t.Errorf("rules that are taken are warned of:\n%s", text)
	}

	d.up(manifests("deploy"), "RELEASE=none")
	d.released(podMonitors, "plumbline-node", "plumbline-agent", "")
	d.released(prometheusRules, "plumbline", "plumbline-stall", "")
	d.refused([]string{"REGISTRY=registry.example.org/plumbline", "RELEASE=a b"}, "up", "RELEASE is a b: give the name of a release")
}
