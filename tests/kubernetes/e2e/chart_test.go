//go:build e2e

package e2e

import (
	"path/filepath"
	"time"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// release is the name that the chart is installed under.
const release = "plumbline"

// The chart's namespaces: its own, and that of the programs on each node.
var chartNamespaces = map[string]string{"plumbline": "restricted", "plumbline-node": "privileged"}

// helmInstall installs the chart, as its notes say.
func (n *node) helmInstall() {
	n.t.Helper()
	for namespace, level := range chartNamespaces {
		n.kubectl("create", "namespace", namespace)
		n.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce="+level)
	}
	n.helm("install", release, chart(), "--wait", "--timeout=5m",
		"--set=image.registry="+ourRegistry, "--set=image.tag="+ourTag, "--set=nodeNamespace=plumbline-node",
		"--set=longhorn.enabled=true", "--set=openebs.enabled=true", "--set=test.wait=5m")
}

func chart() string { return filepath.Join(testkit.Root(), "manifests", "chart") }

// helmUpgrade changes the agent's memory, and goes back to what was before.
func (n *node) helmUpgrade() {
	n.t.Helper()
	limit := func() string {
		return n.kubectl("get", "daemonset", "plumbline-agent", "--namespace=plumbline-node",
			"--output=jsonpath={.spec.template.spec.containers[0].resources.limits.memory} {.status.numberReady}")
	}
	before := limit()
	began := time.Now()
	n.helm("upgrade", release, chart(), "--reuse-values", "--wait", "--timeout=5m", "--set=agent.resources.limits.memory=300Mi")
	if now := limit(); now != "300Mi 1" {
		n.t.Errorf("after the upgrade the agent's limit and pods are %s", now)
	}
	upgraded := time.Now()
	n.helm("rollback", release, "1", "--wait", "--timeout=5m")
	if now := limit(); now != before {
		n.t.Errorf("after the rollback the agent's limit and pods are %s, before the upgrade they were %s", now, before)
	}
	n.t.Logf("upgrade %.0f s, rollback %.0f s", upgraded.Sub(began).Seconds(), time.Since(upgraded).Seconds())
}

// helmTest has `helm test` ask from within the cluster.
func (n *node) helmTest() {
	n.t.Helper()
	n.t.Log(n.helm("test", release, "--timeout=8m"))
}

// helmUninstall takes the chart off again.
func (n *node) helmUninstall() {
	n.t.Helper()
	n.helm("uninstall", release, "--wait", "--timeout=5m")
	for namespace := range chartNamespaces {
		n.kubectl("delete", "namespace", namespace, "--timeout=5m")
	}
}

// helm runs Helm on the release's namespace; where it fails, our pods and what its test said are shown, too.
func (n *node) helm(arguments ...string) string {
	n.t.Helper()
	output, err := kubetest.Helm(n.t, []string{"KUBECONFIG=" + n.path("etc", "kubeconfig")}, append(arguments, "--namespace=plumbline")...)
	if err != nil {
		pods := n.kubectl("get", "pods", "--all-namespaces", "--output=wide", "--selector=app.kubernetes.io/part-of=plumbline")
		logs, _ := n.try("logs", "--namespace=plumbline", "plumbline-test")
		n.t.Fatalf("helm %s: %v\n%s\n%s\n%s", arguments[0], err, output, pods, logs)
	}
	return output
}
