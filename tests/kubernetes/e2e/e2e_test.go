//go:build e2e

package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// patience is how long a condition may take on a machine that does other things, too.
const patience = 5 * time.Minute

// TestOnNode deploys everything on a real node, with the commands that a user would type, and
// follows a query from its server to the claim its data is on.
func TestOnNode(t *testing.T) {
	began := time.Now()
	step := func(what string) { t.Logf("%4.0f s  %s", time.Since(began).Seconds(), what) }
	n := startNode(t)
	step("node ready")
	n.loadImages()
	step("images made and loaded")

	n.write("etc/provisioner.yaml", provisioner)
	n.kubectl("apply", "--server-side", "-f", n.path("etc", "provisioner.yaml"))
	n.applyCRDs()
	n.apply(prometheus)
	n.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: longhorn-system}\n")
	n.deploy("up")
	step("Plumbline deployed, and runs")
	n.apply(database)
	n.kubectl("rollout", "status", "statefulset/shop", "--namespace=shop", "--timeout=5m")
	n.kubectl("rollout", "status", "deployment/canary", "--namespace=shop", "--timeout=5m")
	step("database and canary run")
	testkit.Eventually(t, patience, func() error {
		return n.targetsUp(map[string]int{"plumbline-node/plumbline-agent": 1, "plumbline-node/plumbline-blockio": 1,
			"plumbline-node/longhorn-node-exporter": 1, "plumbline/longhorn-exporter": 1, "plumbline/openebs-exporter": 1, "shop/load": 1})
	})
	step("all targets up")
	groups := n.ruleGroups()
	testkit.Eventually(t, patience, func() error { return n.rulesLoaded(groups) })
	step("all rules loaded and evaluated")

	n.followQuery()
	step("query, phases, volume and claim joined")
	n.logCost()
	n.restartPod()
	step("pod restarted")
	n.killAgent()
	step("agent killed")
	n.deleteClaim()
	step("claim deleted")

	n.deploy("status")
	n.deploy("down")
	for _, kind := range []string{"namespaces", "clusterroles", "clusterrolebindings", "priorityclasses", "podmonitors.monitoring.coreos.com",
		"prometheusrules.monitoring.coreos.com", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"} {
		if left := n.kubectl("get", kind, "--all-namespaces", "--output=name", "--selector=app.kubernetes.io/part-of=plumbline"); left != "" {
			t.Errorf("left behind: %s", left)
		}
	}
	if left := n.kubectl("get", "namespaces", "--output=name"); strings.Contains(left, "plumbline") {
		t.Errorf("left behind: %s", left)
	}
	step("deleted, nothing left")
}

// applyCRDs applies the operator's definitions and Longhorn's.
func (n *node) applyCRDs() {
	n.t.Helper()
	crds := kubetest.ModuleCRDs(n.t, "prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml")
	crds = append(crds, kubetest.ModuleCRDs(n.t, "longhorn-manager", "github.com/longhorn/longhorn-manager", "k8s/crds.yaml")...)
	var all strings.Builder
	for _, crd := range crds {
		text, err := yaml.Marshal(crd.Object)
		n.must(err)
		all.WriteString("---\n")
		all.Write(text)
	}
	n.apply(all.String())
	for _, crd := range crds {
		n.kubectl("wait", "--for=condition=Established", "crd/"+crd.GetName(), "--timeout=2m")
	}
}

// deploy runs the script of that name, as make does.
func (n *node) deploy(command string) {
	n.t.Helper()
	cmd := exec.Command(filepath.Join(testkit.Root(), "manifests", "kubernetes", "deploy"), command)
	cmd.Env = append(os.Environ(), "PATH="+n.path("bin")+":"+os.Getenv("PATH"), "KUBECONFIG="+n.path("etc", "kubeconfig"),
		"ENGINES=longhorn openebs", "CLASSES=local-path")
	if output, err := cmd.CombinedOutput(); err != nil {
		n.t.Fatalf("deploy %s: %v\n%s", command, err, output)
	}
}

// ruleGroups counts the groups in the rules' objects.
func (n *node) ruleGroups() int {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "manifests", "kubernetes", "base", "rules", "*.yaml"))
	n.must(err)
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		n.must(err)
		var object struct{ Spec struct{ Groups []any } }
		n.must(yaml.Unmarshal(text, &object))
		count += len(object.Spec.Groups)
	}
	if count == 0 {
		n.t.Fatal("no groups of rules")
	}
	return count
}

// labels are what a volume's series must say.
const labels = `namespace="shop", persistentvolumeclaim="data-shop-0", storageclass="local-path", backend="local-path", node="node-1"`

// followQuery checks the path of a query, layer by layer, in Prometheus.
func (n *node) followQuery() {
	n.t.Helper()
	for _, expression := range []string{
		// The canary's transactions are answered, and the agent sees their statements.
		`rate(loadgen_completed_total{server="shop"}[1m]) > 1`,
		`histogram_count(sum by (command) (rate(plumbline_query_duration_seconds{server="shop", engine="postgresql", node="node-1"}[1m]))) > 0`,
		`rate(plumbline_query_phase_seconds_total{server="shop", phase="sync"}[1m]) > 0`,
		// The server's data is on the volume that the claim names.
		`plumbline_volume_info{` + labels + `}`,
		`plumbline_server_volume_info{server="shop", purpose="data", volume!=""} * on (node, volume) group_left (persistentvolumeclaim) plumbline_volume_info{` + labels + `}`,
		// The volume's device answers writes, told by the kernel.
		`plumbline_volume_info{` + labels + `} * on (node, device) group_left () histogram_count(sum by (node, device) (rate(ebpf_exporter_blkio_total_seconds{op="write"}[1m]))) > 0`,
		// The rules make it one series.
		`volume:block_write_seconds:mean5m{` + labels + `} > 0`,
		`server:volume:info{server="shop", ` + labels + `}`,
		`server:query_seconds:mean5m{server="shop", node="node-1"} > 0`,
	} {
		testkit.Eventually(n.t, patience, n.some(expression))
	}
	// No part complains, and nothing of the scraped pods stands in the labels' way.
	for _, expression := range []string{
		`plumbline_scrape_collector_success{job!~".*longhorn.*"} == 0`,
		`plumbline_kubernetes_synced == 0`,
		`plumbline_kubernetes_errors_total{reason="forbidden"} > 0`,
		`{__name__=~"plumbline_.*", exported_namespace!=""}`,
		`{__name__=~"plumbline_.*", exported_node!=""}`,
	} {
		testkit.Eventually(n.t, patience, n.none(expression))
	}
}

// logCost tells what all this takes: series by job, and each program's memory.
func (n *node) logCost() {
	n.t.Helper()
	for _, expression := range []string{
		`count by (job) ({job=~".+/.+"})`,
		`count by (job) ({job=~".+/.+", __name__=~"plumbline_.+|ebpf_exporter_blkio_.+|loadgen_.+"})`,
		`count ({__name__=~".+:.+"})`,
		`count by (device) ({__name__=~"ebpf_exporter_blkio_.+"})`,
		`round(process_resident_memory_bytes / 1e6)`,
	} {
		found, err := n.query(expression)
		n.must(err)
		for _, s := range found {
			n.t.Logf("%s: %s%s %v", expression, s.Metric["job"], s.Metric["device"], s.Value[1])
		}
	}
}

// restartPod deletes the database's pod: the claim stays, its new server is followed.
func (n *node) restartPod() {
	n.t.Helper()
	n.kubectl("delete", "pod", "shop-0", "--namespace=shop", "--timeout=3m")
	n.kubectl("rollout", "status", "statefulset/shop", "--namespace=shop", "--timeout=5m")
	testkit.Eventually(n.t, patience, n.some(`histogram_count(sum(rate(plumbline_query_duration_seconds{server="shop"}[20s]))) > 0`))
	testkit.Eventually(n.t, patience, n.some(`plumbline_server_volume_info{server="shop", volume!=""} * on (node, volume) group_left () plumbline_volume_info{`+labels+`}`))
}

// killAgent kills the agent's process: the kubelet starts it again, and it finds everything.
func (n *node) killAgent() {
	n.t.Helper()
	restarts := func() string {
		return n.kubectl("get", "pods", "--namespace=plumbline-node", "--selector=app.kubernetes.io/name=plumbline-agent",
			"--output=jsonpath={.items[*].status.containerStatuses[*].restartCount}")
	}
	before := restarts()
	pid := n.processOf("plumbline-agent")
	n.run("kill", "-KILL", pid)
	testkit.Eventually(n.t, patience, func() error {
		if now := restarts(); now == before {
			return errors.New("the agent was not started again: " + now)
		}
		return nil
	})
	n.kubectl("rollout", "status", "daemonset/plumbline-agent", "--namespace=plumbline-node", "--timeout=5m")
	testkit.Eventually(n.t, patience, n.some(`histogram_count(sum(rate(plumbline_query_duration_seconds{server="shop"}[20s]))) > 0 and on () (time() - max(process_start_time_seconds{job="plumbline-node/plumbline-agent"}) < 300)`))
	testkit.Eventually(n.t, patience, n.some(`plumbline_volume_info{`+labels+`}`))
}

// deleteClaim deletes the database and its claim: their series end.
func (n *node) deleteClaim() {
	n.t.Helper()
	n.kubectl("delete", "statefulset/shop", "deployment/canary", "--namespace=shop", "--cascade=foreground", "--timeout=3m")
	n.kubectl("delete", "persistentvolumeclaim/data-shop-0", "--namespace=shop", "--timeout=3m")
	for _, expression := range []string{
		`plumbline_volume_info{` + labels + `}`,
		`plumbline_server_info{server="shop"}`,
		`loadgen_completed_total{server="shop"}`,
	} {
		testkit.Eventually(n.t, patience, n.none(expression))
	}
	testkit.Eventually(n.t, patience, func() error {
		if left := n.kubectl("get", "persistentvolumes", "--output=name"); left != "" {
			return errors.New("volumes are left: " + left)
		}
		return nil
	})
}

// processOf returns the one process of a program, as the node's own procfs shows it.
func (n *node) processOf(program string) string {
	n.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/exe")
	n.must(err)
	for _, link := range found {
		if target, err := os.Readlink(link); err == nil && target == "/"+program {
			return filepath.Base(filepath.Dir(link))
		}
	}
	n.t.Fatalf("no process of %s", program)
	return ""
}
