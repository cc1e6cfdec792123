//go:build e2e

package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// replicated is the class whose volumes have a replica on each of three nodes.
const replicated = "longhorn-r3"

// TestThreeNodes runs a PostgreSQL with a standby, by CloudNativePG, on Longhorn volumes whose three replicas are on three nodes, and
// takes nodes and their network away. Prometheus and what else must stay is on the first node, the databases are on the others.
func TestThreeNodes(t *testing.T) {
	began := time.Now()
	n := startCluster(t, 3)
	step, part := n.progress("three-nodes-steps.txt", began)
	t.Cleanup(n.linger)
	step("three nodes ready")
	n.loadImages()
	step("images made and loaded")
	n.schedule("node-1")
	n.installOperators()
	step("Prometheus' and CloudNativePG's operators run")
	n.installPlumbline()
	step("Plumbline installed, and runs")
	n.installLonghorn()
	step("Longhorn installed")
	n.schedule("node-2", "node-3")
	n.installBench(replicated)
	n.awaitPostgreSQL(replicated)
	// The canary is no part of what is taken away.
	n.schedule("node-1")
	n.kubectl("rollout", "restart", "deployment/canary-postgresql-"+replicated, "--namespace=db-"+replicated)
	n.kubectl("rollout", "status", "deployment/canary-postgresql-"+replicated, "--namespace=db-"+replicated, "--timeout=5m")
	n.schedule()
	n.kubectl("wait", "--for=jsonpath={.status.robustness}=healthy", "volumes.longhorn.io", "--all", "--namespace=longhorn-system", "--timeout=5m")
	step("PostgreSQL, its standby and a canary run")
	testkit.Eventually(n.t, defaultTimeout, func() error {
		return n.targetsUp(map[string]int{"plumbline-node/plumbline-agent": 3, "plumbline-node/plumbline-blockio": 3,
			"plumbline-node/longhorn-node-exporter": 3, "plumbline/longhorn-exporter": 1, "plumbline/longhorn-manager": 3, "plumbline/openebs-exporter": 1, "plumbline/plumbline-events": 1,
			"monitoring/prometheus": 1, "monitoring/node-exporter": 3, "monitoring/kubelet": 6,
			"db-" + replicated + "/postgresql-" + replicated: 2, "db-" + replicated + "/plumbline-canary": 1})
	})
	step("all targets up")
	testkit.Eventually(n.t, defaultTimeout, func() error { return n.rulesLoaded(n.ruleGroups()) })

	primary, standby := n.primary(replicated), n.standby(replicated)
	volume := n.longhornVolume(replicated, primary)
	home, away := n.workerOf("db-"+replicated, primary), n.workerOf("db-"+replicated, standby)
	part("each agent reports its own node, and each replica has its node", func() {
		if home == away {
			t.Fatalf("both instances are on %s", home.Name)
		}
		n.eachItsOwn(map[string]string{"db-" + replicated + "/" + primary: home.Name, "db-" + replicated + "/" + standby: away.Name})
		n.followLonghorn(volume)
		n.followLonghorn(n.longhornVolume(replicated, standby))
	})
	part("helm test proves statements, phases, volumes and claims joined", n.helmTest)
	part("kubectl plumbline try ends by itself, by an interrupt and by a key, and leaves nothing", func() {
		n.tries("db-"+replicated, volume.claim, []string{primary, "measures on node node-1", "measures on node node-2", "measures on node node-3"}, "--break-down")
		n.tryEnds("db-"+replicated, volume.claim)
	})
	removed := n.tryKilled("db-"+replicated, volume.claim)
	n.report("three-nodes.md", faultTable)
	part("a volume fills: paged with its claim", n.fillVolume)
	part("the disk of a replica is slow: the replica, its disk and its node are named", func() { n.slowReplicaDisk(volume, away) })
	part("the network of a replica's node is slow: the replica and its node are named", func() { n.slowNetwork(volume, away) })
	part("a pod keeps the disk of a replica busy: the replica, its disk and the pod are named", func() { n.busyReplicaDisk(volume, away) })
	part("the network of a replica's node is cut", func() { n.cutNetwork(volume, away) })
	part("the primary's node is cut off", func() { n.loseNode(volume, home, standby) })
	part("the primary's node is drained", n.drainNode)
	part("what kubectl plumbline try made is removed, though it was killed", removed)
	part("no collector fails", func() { testkit.Eventually(n.t, 2*defaultTimeout, n.none(`plumbline_scrape_collector_success == 0`)) })
}

// filling is a pod with a volume of the replicated class, as small as Longhorn makes one.
const filling = `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: filling, namespace: default}
spec: {accessModes: [ReadWriteOnce], storageClassName: ` + replicated + `, resources: {requests: {storage: 100Mi}}}
---
apiVersion: v1
kind: Pod
metadata: {name: filling, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: filling
      image: e2e/busybox:latest
      imagePullPolicy: Never
      args: [-c, "sleep 2147483647"]
      volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: filling}}]
`

// fillVolume fills a volume, and makes room again. The chart's alerts on full volumes are off beside kube-prometheus-stack.
func (n *node) fillVolume() {
	n.t.Helper()
	n.helm("plumbline", "upgrade", "plumbline", chart(), "--reset-then-reuse-values", "--wait", "--timeout=5m", "--set=rules.nodeAlerts=true")
	n.apply(filling)
	n.kubectl("wait", "--for=condition=Ready", "pod/filling", "--timeout=5m")
	const fires = `ALERTS{alertname="VolumeAlmostFull", alertstate="firing", namespace="default", persistentvolumeclaim="filling", severity="critical"}`
	testkit.Eventually(n.t, defaultTimeout, n.some(`volume:available_watched:ratio{persistentvolumeclaim="filling"} > 0.5`))
	began := time.Now()
	n.kubectl("exec", "filling", "--", "sh", "-c", "cat /dev/zero >/data/file; test -s /data/file")
	testkit.Eventually(n.t, 2*defaultTimeout, n.some(fires))
	n.keepLine("three-nodes.txt", "a full volume of %s: paged after %.0f s", replicated, time.Since(began).Seconds())
	testkit.Eventually(n.t, defaultTimeout, n.none(`ALERTS{alertname="VolumeAlmostFull", persistentvolumeclaim!="filling"}`))
	n.kubectl("exec", "filling", "--", "rm", "/data/file")
	testkit.Eventually(n.t, 2*defaultTimeout, n.none(fires))
	n.kubectl("delete", "pod/filling", "persistentvolumeclaim/filling", "--timeout=5m")
}

// row does something and its end, waits until the volume is well again, writes which alerts fired meanwhile, and returns those of the
// volume.
func (n *node) row(what string, v longhornVolume, during func() (mend func())) string {
	n.t.Helper()
	began := time.Now()
	watch := n.watchAlerts()
	mend := during()
	over := time.Since(began)
	mend()
	return n.reportFault("three-nodes.md", what, v, began, over, watch)
}

// eachItsOwn checks that each server, by its name, is reported by the agent of its own node alone, and its volume as well.
func (n *node) eachItsOwn(servers map[string]string) {
	n.t.Helper()
	for server, node := range servers {
		for _, wanted := range []string{
			fmt.Sprintf(`plumbline_server_info{server=%q, node=%q}`, server, node),
			fmt.Sprintf(`plumbline_server_volume_info{server=%q, node=%q, volume!=""}`, server, node),
			fmt.Sprintf(`rate(plumbline_query_phase_seconds_total{server=%q, node=%q, phase="cpu"}[1m]) > 0`, server, node),
		} {
			testkit.Eventually(n.t, defaultTimeout, n.some(wanted))
		}
		for _, metric := range []string{"plumbline_server_info", "plumbline_server_volume_info", "plumbline_query_phase_seconds_total"} {
			testkit.Eventually(n.t, defaultTimeout, n.none(fmt.Sprintf(`%s{server=%q, node!=%q}`, metric, server, node)))
		}
	}
}

// replicaOn is the replica of a volume on a node.
func (n *node) replicaOn(v longhornVolume, w *worker) string {
	n.t.Helper()
	for _, r := range v.replicas {
		if n.nodeOf(r) == w.Name {
			return r
		}
	}
	n.t.Fatalf("no replica of %v is on %s", v, w.Name)
	return ""
}

// slowReplicaDisk holds back the writes of the disk below a replica.
func (n *node) slowReplicaDisk(v longhornVolume, w *worker) {
	n.t.Helper()
	device := filepath.Base(w.disk.Device)
	n.namesReplica("the disk of the replica on "+w.Name+" is slow", v, w, []string{device}, func() func() {
		w.disk.Writes.Set(30 * time.Millisecond)
		return func() { w.disk.Writes.Set(0) }
	})
}

// writing is a pod that writes to the disk of a node's replicas, as much as it can, eight blocks at a time.
const writing = `
apiVersion: v1
kind: Pod
metadata: {name: nightly, namespace: default}
spec:
  nodeName: %s
  terminationGracePeriodSeconds: 1
  containers:
    - name: nightly
      image: e2e/busybox:latest
      imagePullPolicy: Never
      args:
        - -c
        - |
          for n in 1 2 3 4 5 6 7 8; do
            while :; do dd if=/dev/zero of=/disk/nightly-$n bs=4k count=2500 conv=notrunc oflag=direct; done &
          done
          wait
      volumeMounts: [{name: disk, mountPath: /disk}]
  volumes: [{name: disk, hostPath: {path: /var/lib/longhorn}}]
`

// busyReplicaDisk has a pod write to the disk of a replica, which does a thousand writes a second and no more.
func (n *node) busyReplicaDisk(v longhornVolume, w *worker) {
	n.t.Helper()
	w.disk.Writes.Set(time.Millisecond)
	defer w.disk.Writes.Set(0)
	replica, device := n.replicaOn(v, w), filepath.Base(w.disk.Device)
	what := "a pod keeps the disk of the replica on " + w.Name + " busy"
	testkit.Eventually(n.t, 3*defaultTimeout, n.none(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica"}`, v.volume)))
	// Before that, nothing is usual.
	testkit.Eventually(n.t, 4*defaultTimeout, n.some(fmt.Sprintf(`last_over_time(disk:requests:rate5m{node=%q, device=%q}[1d] offset 15m)`, w.Name, device)))
	n.row(what, v, func() func() {
		began := time.Now()
		n.apply(fmt.Sprintf(writing, w.Name))
		testkit.Eventually(n.t, defaultTimeout, func() error {
			why := n.plumbline("why", "--namespace=db-"+v.class, v.claim)
			for _, name := range []string{"replica " + replica + " stands out", device + " on " + w.Name, "default/nightly (pod)"} {
				if !strings.Contains(strings.Join(strings.Fields(why), " "), name) {
					return fmt.Errorf("no %q in\n%s", name, why)
				}
			}
			n.keepLine("three-nodes.txt", "%s: named by kubectl plumbline why after %.0f s\n%s", what, time.Since(began).Seconds(), why)
			return nil
		})
		testkit.Eventually(n.t, defaultTimeout, func() error {
			alerts, err := n.firing("WalSyncSlow", "CanarySlow", "ReplicaSlowerThanPeers", "ReplicaFailSlow")
			if err != nil {
				return err
			}
			for _, a := range alerts {
				if strings.Contains(fmt.Sprint(a.Annotations), "default/nightly") {
					n.keepLine("three-nodes.txt", "%s: named by %s after %.0f s: %s", what, a.Labels["alertname"], time.Since(began).Seconds(), a.Annotations["description"])
					return nil
				}
			}
			return fmt.Errorf("the pod is in none of %v", alerts)
		})
		return func() { n.kubectl("delete", "pod/nightly", "--namespace=default", "--timeout=2m") }
	})
}

// slowNetwork has everything to a node go slowly.
func (n *node) slowNetwork(v longhornVolume, w *worker) {
	n.t.Helper()
	n.namesReplica("the network to "+w.Name+", where a replica is, is slow", v, w, nil, func() func() { return n.throttle(w) })
}

// namesReplica makes the replica on a node slow: the verdict and kubectl plumbline why and try name that replica, no other one, the node,
// and what else is wanted.
func (n *node) namesReplica(what string, v longhornVolume, w *worker, wanted []string, do func() (mend func())) {
	n.t.Helper()
	slow := n.replicaOn(v, w)
	wanted = append([]string{slow, w.Name}, wanted...)
	// None stands out before: what was at the beginning is forgotten after some minutes.
	testkit.Eventually(n.t, 2*defaultTimeout, n.none(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica"}`, v.volume)))
	n.row(what, v, func() func() {
		began := time.Now()
		mend := do()
		testkit.Eventually(n.t, 2*defaultTimeout, n.some(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica", replica=%q}`, v.volume, slow)))
		n.keepLine("three-nodes.txt", "%s: replica %s named after %.0f s", what, slow, time.Since(began).Seconds())
		testkit.Eventually(n.t, defaultTimeout, n.none(fmt.Sprintf(`volume:verdict:confidence{volume=%q, reason="replica", replica!=%q}`, v.volume, slow)))
		why := n.plumbline("why", "--namespace=db-"+v.class, v.claim)
		n.keepLine("three-nodes.txt", "%s", why)
		for _, name := range wanted {
			if !strings.Contains(why, name) {
				n.t.Errorf("kubectl plumbline why does not name %s:\n%s", name, why)
			}
		}
		n.tries("db-"+v.class, v.claim, wanted, "--break-down")
		return mend
	})
}

// cutNetwork takes a node that only has a replica of the volume off the network: Longhorn goes on without that replica, and rebuilds it.
func (n *node) cutNetwork(v longhornVolume, w *worker) {
	n.t.Helper()
	n.row(w.Name+", where a replica is, is cut off", v, func() func() {
		mend := n.cut(w)
		testkit.Eventually(n.t, defaultTimeout, n.degraded(v))
		testkit.Eventually(n.t, defaultTimeout, n.some(fmt.Sprintf(`ALERTS{alertname="VolumeDegraded", volume=%q}`, v.volume)))
		return mend
	})
}

// loseNode takes the primary's node off the network until CloudNativePG has made the standby the primary, whose volume keeps its claim.
func (n *node) loseNode(v longhornVolume, w *worker, standby string) {
	n.t.Helper()
	other := n.longhornVolume(v.class, standby)
	watcher := n.watch("db-"+v.class, "postgresql-"+v.class, v.class)
	defer watcher.end()
	n.row(w.Name+", where the primary is, is cut off", other, func() func() {
		var mend func()
		began := time.Now()
		watcher.outage("the primary's node is cut off", func() {
			mend = n.cut(w)
			testkit.Eventually(n.t, 2*defaultTimeout, n.primaryIs(v.class, standby))
		})
		n.keepLine("three-nodes.txt", "the primary's node is cut off: %s is the primary, and answered for a minute, after %.0f s", standby, time.Since(began).Seconds())
		for _, expression := range []string{
			fmt.Sprintf(`server:volume:info{server="db-%s/%s", persistentvolumeclaim=%q, volume=%q}`, v.class, standby, standby, other.volume),
			fmt.Sprintf(`loadgen:volume:info{server="db-%s/%s", volume=%q}`, v.class, standby, other.volume),
		} {
			testkit.Eventually(n.t, defaultTimeout, n.some(expression))
		}
		return mend
	})
	n.kubectl("wait", "--for=condition=Ready", "cluster/postgresql-"+v.class, "--namespace=db-"+v.class, "--timeout=10m")
	testkit.Eventually(n.t, 3*defaultTimeout, n.some(fmt.Sprintf(`plumbline_longhorn_volume_robustness{volume=%q, robustness="healthy"} == 1`, v.volume)))
}

// drainNode drains the primary's node, as before its maintenance: nobody is paged for that.
func (n *node) drainNode() {
	n.t.Helper()
	n.streaming(replicated)
	before, after := n.primary(replicated), n.standby(replicated)
	w, other := n.workerOf("db-"+replicated, before), n.longhornVolume(replicated, after)
	// What the former scenario had somebody paged for is over.
	testkit.Eventually(n.t, 2*defaultTimeout, n.none(`ALERTS{alertstate="firing", severity="critical"}`))
	watcher := n.watch("db-"+replicated, "postgresql-"+replicated, replicated)
	defer watcher.end()
	alerts := n.row(w.Name+", where the primary is, is drained", other, func() func() {
		watcher.outage("the primary's node is drained", func() {
			n.kubectl("drain", w.Name, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=8m")
			testkit.Eventually(n.t, defaultTimeout, n.primaryIs(replicated, after))
		})
		return func() { n.kubectl("uncordon", w.Name) }
	})
	if strings.Contains(alerts, "critical") {
		n.t.Errorf("somebody was paged for a drained node: %s", alerts)
	}
	n.awaitPostgreSQL(replicated)
}
