//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The namespaces of the chart's programs, and the PodSecurity level of each: its own, and that of the programs on each node.
var chartNamespaces = map[string]string{"plumbline": "restricted", "plumbline-node": "privileged"}

// Both charts take the images that are on the node, which no registry has.
const imageValues = `
image: {registry: ` + ourRegistry + `, tag: ` + ourTag + `, pullPolicy: Never}
`

const plumblineValues = imageValues + `
nodeNamespace: plumbline-node
longhorn: {enabled: true}
openebs: {enabled: true}
test: {wait: 5m}
verdict: {events: true}
`

// smallPostgreSQL and smallMySQL are the values of a database for one small node.
const (
	smallPostgreSQL = `
  image: ` + postgresqlImage + `
  resources: {requests: {cpu: 50m, memory: 256Mi}, limits: null}
  # A standby begins with a checkpoint, which PostgreSQL spreads over most of checkpoint_timeout.
  parameters: {shared_buffers: 64MB, max_wal_size: 512MB, checkpoint_timeout: 30s}`
	smallMySQL = `
  image: ` + mysqlImage + `
  args: [--innodb-buffer-pool-size=64M, --innodb-flush-log-at-trx-commit=1, --sync-binlog=1]
  resources: {requests: {cpu: 50m, memory: 256Mi}, limits: null}
  exporter: {image: "e2e/mysqld_exporter:latest"}`
)

// benchValues are those of a bench for one small node. On the class held, and in a cluster, PostgreSQL has a standby; the control one PostgreSQL and one MySQL.
const benchValues = imageValues + `
classes: [%[1]s]
postgresql:` + smallPostgreSQL + `
  instances: %[2]d
  storage: {size: 1Gi}
  queryTexts: true
  spec: {stopDelay: 10, smartShutdownTimeout: 5, switchoverDelay: 10}
mysql:` + smallMySQL + `
  enabled: %[3]t
  storage: {size: 1Gi}
loads: {enabled: false}
# Three minutes are enough for a delay that is many times as large. What spoils a run on a busy machine is in the pin.
baseline: {duration: 3m, extraArgs: [--max-duration=3m, --force]}
`

func chart() string { return filepath.Join(testkit.Root(), "manifests", "chart") }

func benchChart(file ...string) string {
	return filepath.Join(append([]string{testkit.Root(), "manifests", "bench"}, file...)...)
}

// installPlumbline installs the chart as its page has it.
func (n *node) installPlumbline() {
	n.t.Helper()
	for namespace, level := range chartNamespaces {
		n.kubectl("create", "namespace", namespace)
		n.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce="+level)
	}
	n.write("etc/plumbline.yaml", plumblineValues)
	n.helm("plumbline", "install", "plumbline", chart(), "--wait", "--timeout=5m", "-f", n.path("etc", "plumbline.yaml"))
}

// upgradePlumbline changes the agent's memory, and goes back to what was before.
func (n *node) upgradePlumbline() {
	n.t.Helper()
	limit := func() string {
		return n.kubectl("get", "daemonset", "plumbline-agent", "--namespace=plumbline-node",
			"--output=jsonpath={.spec.template.spec.containers[0].resources.limits.memory} {.status.numberReady}")
	}
	before := limit()
	began := time.Now()
	n.helm("plumbline", "upgrade", "plumbline", chart(), "--reset-then-reuse-values", "--wait", "--timeout=5m", "--set=agent.resources.limits.memory=300Mi")
	if now := limit(); now != "300Mi 1" {
		n.t.Errorf("after the upgrade the agent's limit and pods are %s", now)
	}
	upgraded := time.Now()
	n.helm("plumbline", "rollback", "plumbline", "1", "--wait", "--timeout=5m")
	if now := limit(); now != before {
		n.t.Errorf("after the rollback the agent's limit and pods are %s, before the upgrade they were %s", now, before)
	}
	n.t.Logf("upgrade %.0f s, rollback %.0f s", upgraded.Sub(began).Seconds(), time.Since(upgraded).Seconds())
}

// helmTest has `helm test` query Prometheus from within the cluster.
func (n *node) helmTest() {
	n.t.Helper()
	n.t.Log(n.helm("plumbline", "test", "plumbline", "--timeout=8m"))
}

// uninstallPlumbline uninstalls the chart and deletes its namespaces.
func (n *node) uninstallPlumbline() {
	n.t.Helper()
	n.helm("plumbline", "uninstall", "plumbline", "--wait", "--timeout=5m")
	for namespace := range chartNamespaces {
		n.kubectl("delete", "namespace", namespace, "--timeout=5m")
	}
}

// installBench installs the bench on a class, as a release in the namespace db-CLASS.
func (n *node) installBench(class string) {
	n.t.Helper()
	namespace := "db-" + class
	n.kubectl("create", "namespace", namespace)
	n.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=baseline")
	instances := 1
	if class == held || !n.OneNode() {
		instances = 2
	}
	values := filepath.Join("etc", namespace+".yaml")
	n.write(values, fmt.Sprintf(benchValues, class, instances, class == control))
	// The operator's webhook answers a little after the operator is ready.
	testkit.Eventually(n.t, defaultTimeout, func() error {
		_, err := n.tryHelm(namespace, "upgrade", "--install", "bench", benchChart(), "-f", n.path(values))
		return err
	})
}

// uninstallBenches uninstalls the benches and deletes their namespaces: their volumes and series end.
func (n *node) uninstallBenches() {
	n.t.Helper()
	for _, class := range []string{control, held} {
		n.helm("db-"+class, "uninstall", "bench", "--wait", "--timeout=5m")
		n.kubectl("delete", "namespace", "db-"+class, "--timeout=5m")
	}
	for _, expression := range []string{`plumbline_volume_info{storageclass=~"local-path|held"}`, `plumbline_server_info{server=~"db-.*"}`, `loadgen_completed_total`} {
		testkit.Eventually(n.t, defaultTimeout, n.none(expression))
	}
	testkit.Eventually(n.t, defaultTimeout, func() error {
		if left := n.kubectl("get", "persistentvolumes", "--output=name"); left != "" {
			return errors.New("volumes are left: " + left)
		}
		return nil
	})
}

// helm runs Helm on a namespace. Where it fails, the error has our pods and the log of the chart's test, too.
func (n *node) helm(namespace string, arguments ...string) string {
	n.t.Helper()
	output, err := n.tryHelm(namespace, arguments...)
	if err != nil {
		pods := n.kubectl("get", "pods", "--all-namespaces", "--output=wide", "--selector=app.kubernetes.io/part-of=plumbline")
		logs, _ := n.try("logs", "--namespace=plumbline", "plumbline-test")
		n.t.Fatalf("%v\n%s\n%s", err, pods, logs)
	}
	return output
}

func (n *node) tryHelm(namespace string, arguments ...string) (string, error) {
	output, err := kubetest.Helm(n.t, []string{"KUBECONFIG=" + n.path("etc", "kubeconfig")}, append(arguments, "--namespace="+namespace)...)
	if err != nil {
		return "", fmt.Errorf("helm %s: %w\n%s", arguments[0], err, output)
	}
	return output, nil
}
