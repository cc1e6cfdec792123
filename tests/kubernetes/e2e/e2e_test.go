//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// defaultTimeout is how long a condition may take on a machine that does other things, too.
const defaultTimeout = 5 * time.Minute

// TestOnNode installs both charts on a real node, with the commands that a user would type: it
// follows statements from their servers to the claims their data is on, slows what the servers
// stand on, and asserts who is blamed.
func TestOnNode(t *testing.T) {
	began := time.Now()
	n := startNode(t)
	step, part := n.progress("steps.txt", began)
	disk := n.holdDisk()
	t.Cleanup(n.endPods)
	t.Cleanup(n.linger)
	step("node ready")
	n.loadImages()
	step("images made and loaded")

	n.write("etc/provisioner.yaml", provisioner)
	n.kubectl("apply", "--server-side", "-f", n.path("etc", "provisioner.yaml"))
	n.apply(heldClass)
	n.kubectl("apply", "--server-side", "-f", filepath.Join(testkit.Root(), "manifests", "examples", "storage-classes", control+".yaml"))
	pages := n.installOperators()
	step("Prometheus' and CloudNativePG's operators run")
	n.installPlumbline()
	step("Plumbline installed, and runs")
	n.installBench(control)
	n.installBench(held)
	n.awaitDatabases()
	n.punctual()
	step("databases and canaries run")
	testkit.Eventually(t, defaultTimeout, func() error {
		return n.targetsUp(map[string]int{"plumbline-node/plumbline-agent": 1, "plumbline-node/plumbline-blockio": 1,
			"plumbline-node/longhorn-node-exporter": 1, "plumbline/longhorn-exporter": 1, "plumbline/openebs-exporter": 1, "plumbline/plumbline-events": 1,
			"monitoring/prometheus": 1, "monitoring/node-exporter": 1, "monitoring/kubelet": 2,
			"db-local-path/postgresql-local-path": 1, "db-local-path/mysql": 1, "db-local-path/plumbline-canary": 2,
			"db-held/postgresql-held": 2, "db-held/plumbline-canary": 1})
	})
	step("all targets up")
	testkit.Eventually(t, defaultTimeout, func() error { return n.rulesLoaded(n.ruleGroups()) })
	step("all rules loaded and evaluated")

	claims := map[string]string{"db-local-path/postgresql-local-path-1": "postgresql-local-path-1", "db-local-path/mysql-local-path-0": "data-mysql-local-path-0",
		"db-held/postgresql-held-1": "postgresql-held-1", "db-held/postgresql-held-2": "postgresql-held-2"}
	classes := map[string]string{}
	loads := loadsOf(n.primary(held))
	for server := range claims {
		classes[server] = strings.TrimPrefix(strings.Split(server, "/")[0], "db-")
	}
	joined := func(when string) {
		n.t.Helper()
		err := testkit.Await(defaultTimeout, func() error { return n.checkJoins(claims, classes, loads) })
		n.writeJoins(when)
		n.must(err)
	}
	part("servers, pods, claims, volumes, devices, classes and loads joined", func() { joined("as deployed"); n.followQuery() })
	part("helm test proves statements, phases, volumes and claims joined", n.helmTest)
	n.logCost()

	// What is slow is judged against a pin, which takes minutes.
	pin := sync.OnceFunc(func() {
		n.pinBaseline()
		step("baseline pinned")
		n.comparable(2)
		step("canaries comparable, none slow")
	})
	part("every panel has data, or a reason", func() { pin(); n.panels() })
	part("exposition saved", n.saveExposition)
	slowed := n.primary(held)
	part("disk slowed: CanarySlow reports where and why", func() { pin(); n.slowDisk(disk, 10*time.Millisecond) })
	part("disk stalled: paged", func() { n.stallDisk(disk, pages) })
	primaryIs := func(before, after string) {
		loads = loadsOf(after)
		joined("after the change from " + before + " to " + after)
	}
	part("failed over and switched over: joins kept, outages measured", func() {
		var before, after string
		w := n.watch("db-held", "postgresql-held", held)
		defer w.end()
		w.outage("failover, the primary's pod is gone", func() { before, after = n.failOver() })
		primaryIs(before, after)
		w.outage("switchover", func() { before, after = n.switchOver() })
		primaryIs(before, after)
	})
	part("primary's volume hangs, the operator sees nothing: paged", func() { n.hangPrimary(disk, pages) })
	killAgent := sync.OnceFunc(n.killAgent)
	part("agent killed, joins kept", func() {
		killAgent()
		// The operator may have changed the primary while the disk of the class held hung.
		loads = loadsOf(n.primary(held))
		joined("after the agent was killed")
	})
	part("runbooks' commands typed", func() {
		pin()
		killAgent() // one of the commands reads the log of the container before
		n.runRunbooks()
	})
	part("sessions wait for a lock: it is blamed", n.holdLock)
	part("CPU hogged: nobody's storage is blamed", func() { pin(); n.hogCPU() })
	part("machine, pod and limited pod: the CPU limit is reported", n.besideMachine)
	part("matrix on both classes: the slow one is named, and its device", func() { n.runMatrix(disk, 5*time.Millisecond) })
	part("verdicts are events of the claim, begun and ended", func() { n.verdictsAreEvents(slowed) })
	part("Longhorn", func() {
		n.installLonghorn()
		step("Longhorn installed")
		volumes := n.longhornDatabases()
		step("databases on Longhorn run")
		replicated := volumes[1]
		part("a query followed to each replica", func() {
			for _, v := range volumes {
				n.followLonghorn(v)
			}
		})
		recovered := func() {}
		part("a slow replica is named, in an event, too", func() { recovered = n.slowReplica(replicated) })
		part("faults that an operator meets", func() { n.longhornFaults(replicated) })
		part("the slow replica's event has an end", func() { recovered() })
		n.uninstallLonghornBenches()
		step("databases on Longhorn deleted, nothing of their volumes left")
		part("the first publication: PostgreSQL", func() { n.publish("dalibo") })
		part("the fifth publication: MySQL", func() { n.publish("mayastor") })
	})
	part("chart upgraded and rolled back", n.upgradePlumbline)
	n.uninstallBenches()
	step("benches uninstalled, their claims deleted")
	n.uninstallPlumbline()
	n.nothingLeft()
	step("Plumbline uninstalled, nothing left")
}

// progress returns what prints and reports the steps of a run that began then, and what runs one of its scenarios, or a part of one: the
// others go on if it fails.
func (n *node) progress(file string, began time.Time) (step func(what string), part func(what string, run func())) {
	last := began
	step = func(what string) {
		line := fmt.Sprintf("%5.0f s %5.0f s  %s", time.Since(began).Seconds(), time.Since(last).Seconds(), what)
		last = time.Now()
		fmt.Println(line)
		n.report(file, line+"\n")
	}
	return step, func(what string, run func()) {
		n.part(what, run)
		step(what)
	}
}

// part runs a part of the test as a test of its own, after whose failure the others go on.
func (n *node) part(what string, run func()) {
	outer := n.t
	outer.Run(strings.ReplaceAll(what, " ", "_"), func(t *testing.T) {
		n.t = t
		run()
	})
	n.t = outer
}

// loadsOf are the loads by the server that each reaches, where the class held has this primary.
func loadsOf(primary string) map[string]string {
	return map[string]string{"db-local-path/mysql-local-path-0": "mysql", "db-local-path/postgresql-local-path-1": "postgresql", "db-held/" + primary: "postgresql"}
}

// nothingLeft checks that no object of the charts is on the cluster.
func (n *node) nothingLeft() {
	n.t.Helper()
	for _, kind := range []string{"clusterroles", "clusterrolebindings", "priorityclasses", "podmonitors.monitoring.coreos.com",
		"prometheusrules.monitoring.coreos.com", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io"} {
		if found := n.kubectl("get", kind, "--all-namespaces", "--selector=app.kubernetes.io/part-of=plumbline", "--no-headers",
			"--output=custom-columns=:.metadata.namespace,:.metadata.name"); strings.TrimSpace(found) != "" {
			n.t.Errorf("%s are left behind: %s", kind, found)
		}
	}
	if left := n.kubectl("get", "namespaces", "--output=name"); strings.Contains(left, "plumbline") {
		n.t.Errorf("left behind: %s", left)
	}
}

// installOperators installs Prometheus' and CloudNativePG's operators, a Prometheus and an Alertmanager, which reports to the returned pager.
func (n *node) installOperators() *pager {
	n.t.Helper()
	n.applyCRDs()
	n.kubectl("create", "namespace", "monitoring")
	pages := n.startPager()
	n.apply(prometheus)
	n.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: longhorn-system}\n")
	n.applyCloudNativePG()
	return pages
}

// applyCRDs applies the operator's definitions and Longhorn's.
func (n *node) applyCRDs() {
	n.t.Helper()
	crds := kubetest.ModuleCRDs(n.t, "prometheus-operator")
	crds = append(crds, kubetest.ModuleCRDs(n.t, "longhorn-manager")...)
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

// ruleGroups counts the groups of rules that the chart installs.
func (n *node) ruleGroups() int {
	n.t.Helper()
	files, err := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	n.must(err)
	count := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		n.must(err)
		var rules struct{ Groups []any }
		n.must(yaml.Unmarshal(text, &rules))
		count += len(rules.Groups)
	}
	if count == 0 {
		n.t.Fatal("no groups of rules")
	}
	return count
}

// followQuery checks the path of a query, layer by layer, in Prometheus.
func (n *node) followQuery() {
	n.t.Helper()
	for class, pod := range map[string]string{control: "postgresql-local-path-1", held: n.primary(held)} {
		server := fmt.Sprintf("db-%s/%s", class, pod)
		labels := fmt.Sprintf(`namespace="db-%s", persistentvolumeclaim=%q, storageclass=%q, node="node-1"`, class, pod, class)
		for _, expression := range []string{
			// The canary's transactions are answered, and the agent sees their statements.
			fmt.Sprintf(`rate(loadgen_completed_total{storageclass=%q}[1m]) > 1`, class),
			fmt.Sprintf(`histogram_count(sum by (command) (rate(plumbline_query_duration_seconds{server=%q, db_system="postgresql", node="node-1"}[1m]))) > 0`, server),
			fmt.Sprintf(`rate(plumbline_query_phase_seconds_total{server=%q, phase="sync"}[1m]) > 0`, server),
			// The server's data is on the volume that the claim names, and its device answers writes.
			fmt.Sprintf(`plumbline_server_volume_info{server=%q, purpose="data", volume!=""} * on (node, volume) group_left (persistentvolumeclaim) plumbline_volume_info{%s}`, server, labels),
			fmt.Sprintf(`plumbline_volume_info{%s} * on (node, device) group_left () histogram_count(sum by (node, device) (rate(ebpf_exporter_blkio_total_seconds{op="write"}[1m]))) > 0`, labels),
			// The rules make it one series.
			fmt.Sprintf(`volume:block_write_seconds:mean5m{%s} > 0`, labels),
			fmt.Sprintf(`server:volume:info{server=%q, %s}`, server, labels),
			fmt.Sprintf(`server:query_seconds:mean5m{server=%q, node="node-1"} > 0`, server),
			fmt.Sprintf(`server:database:info{server=%q, storageclass=%q}`, server, class),
			// A query by its identifier, and its text as the operator's exporter has it.
			fmt.Sprintf(`rate(plumbline_query_id_statements_total{server=%q}[1m]) > 0 and on (server, queryid) query:text:info{query!=""}`, server),
		} {
			testkit.Eventually(n.t, defaultTimeout, n.some(expression))
		}
	}
	// The control is known as one, and no other class is.
	testkit.Eventually(n.t, defaultTimeout, n.some(`plumbline_storageclass_control_info{storageclass="local-path"}`))
	testkit.Eventually(n.t, defaultTimeout, n.none(`plumbline_storageclass_control_info{storageclass="held"}`))
	// No part complains, and nothing of the scraped pods stands in the labels' way.
	for _, expression := range []string{
		`plumbline_scrape_collector_success{job!~".*longhorn.*"} == 0`,
		`plumbline_kubernetes_synced == 0`,
		`plumbline_kubernetes_errors_total{reason="forbidden"} > 0`,
		`{__name__=~"plumbline_.*", exported_namespace!=""}`,
		`{__name__=~"plumbline_.*", exported_node!=""}`,
	} {
		testkit.Eventually(n.t, defaultTimeout, n.none(expression))
	}
}

// logCost logs what all this takes: series by job, and each program's memory.
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
	testkit.Eventually(n.t, defaultTimeout, func() error {
		if now := restarts(); now == before {
			return errors.New("the agent was not started again: " + now)
		}
		return nil
	})
	n.kubectl("rollout", "status", "daemonset/plumbline-agent", "--namespace=plumbline-node", "--timeout=5m")
	testkit.Eventually(n.t, defaultTimeout, n.some(`histogram_count(sum(rate(plumbline_query_duration_seconds{server="db-held/`+n.primary(held)+`"}[20s]))) > 0 and on () (time() - max(process_start_time_seconds{job="plumbline-node/plumbline-agent"}) < 300)`))
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
