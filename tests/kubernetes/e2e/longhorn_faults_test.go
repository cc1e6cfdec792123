//go:build e2e

package e2e

import (
	"context"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// longhornFault is something that an operator of Longhorn meets.
type longhornFault struct {
	what  string
	begin func(longhornVolume) (mend func())
	// over is called before the fault begins. It returns what is nil once the fault had its whole effect, which is awaited before it
	// is mended.
	over func(longhornVolume) func() error
	// alert returns the labels of an alert that is awaited before the fault is mended. Without it none is required.
	alert func(longhornVolume) string
}

// longhornFaults does all of them to a volume of three replicas, one after the other: it must be well again after each. A table has the
// alerts that fired meanwhile.
func (n *node) longhornFaults(v longhornVolume) {
	n.t.Helper()
	n.report("longhorn-faults.md", faultTable)
	for _, f := range []longhornFault{
		{what: "a replica's process is killed", begin: n.killedReplica, over: n.degraded},
		{what: "a replica's process is stopped for a minute", begin: n.stoppedReplica, over: n.minute, alert: stuck},
		{what: "the engine's process is killed", begin: n.killedEngine, over: n.otherEngine},
		{what: "the instance manager's pod is deleted", begin: n.deletedManager, over: n.otherEngine},
		{what: "the database hibernates for a while: detached and attached", begin: n.hibernated, over: n.noEngine},
		{what: "two replicas instead of three, and back", begin: n.fewerReplicas, over: n.replicasAre(2)},
		{what: "longhorn-manager is away for three minutes", begin: n.managerAway, over: n.managerGone},
		{what: "the engine is upgraded while attached", begin: n.upgradedEngine, over: n.engineUpgraded},
		// The last one: that many snapshots go with the volume.
		{what: "the volume has 101 snapshots", begin: n.manySnapshots, over: n.snapshotsAre(101), alert: tooManySnapshots},
	} {
		n.part(f.what, func() {
			began := time.Now()
			watch, isOver := n.watchAlerts(), f.over(v)
			mend := f.begin(v)
			testkit.Eventually(n.t, defaultTimeout, isOver)
			over := time.Since(began)
			if f.alert != nil {
				testkit.Eventually(n.t, defaultTimeout, n.some(fmt.Sprintf(`ALERTS{volume=%q, %s}`, v.volume, f.alert(v))))
			}
			if mend != nil {
				mend()
			}
			n.reportFault("longhorn-faults.md", f.what, v, began, over, watch)
		})
	}
}

// faultTable is the head of the table of faults.
const faultTable = "| fault | over after | alerts of the volume, after seconds | other alerts |\n|---|---|---|---|\n"

// reportFault waits until the volume is well again after a fault that is mended, and writes the fault's row. It returns the alerts of the
// volume that fired meanwhile.
func (n *node) reportFault(file, what string, v longhornVolume, began time.Time, over time.Duration, watch func(longhornVolume) (ours, others string)) string {
	n.t.Helper()
	testkit.Eventually(n.t, 3*defaultTimeout, n.wellAgain(v, time.Now()))
	well := time.Since(began)
	ours, others := watch(v)
	n.report(file, fmt.Sprintf("| %s | %.0f s, well again %.0f s | %s | %s |\n", what, over.Seconds(), well.Seconds(), ours, others))
	n.t.Logf("%s: over after %s, well again after %s; alerts of the volume: %s; others: %s", what, over, well, ours, others)
	return ours
}

// watchAlerts reads the alerts that fire once a second, until the returned function is called. It returns those that
// are about the volume and others, each by its name and what it names, with the seconds until it fired.
func (n *node) watchAlerts() func(longhornVolume) (ours, others string) {
	n.t.Helper()
	began := time.Now()
	ctx, stop := context.WithCancel(context.Background())
	fired := map[string]string{}
	about := map[string]map[string]string{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ticker := time.NewTicker(time.Second); ctx.Err() == nil; <-ticker.C {
			var answer struct{ Alerts []alert }
			if n.api("alerts", &answer) != nil {
				continue // a busy Prometheus
			}
			for _, a := range answer.Alerts {
				labels := a.Labels
				key := labels["alertname"]
				for _, label := range []string{"replica", "server", "device", "job", "severity"} {
					if labels[label] != "" {
						key += " " + labels[label]
					}
				}
				if _, known := fired[key]; a.State == "firing" && !known {
					fired[key] = fmt.Sprintf("%s (%.0f s)", key, time.Since(began).Seconds())
					about[key] = labels
					if a.ActiveAt.Before(began) {
						fired[key] = key + " (before)"
					}
				}
			}
		}
	}()
	return func(v longhornVolume) (ours, others string) {
		stop()
		<-done
		var its, rest []string
		for _, key := range slices.Sorted(maps.Keys(fired)) {
			if l := about[key]; l["volume"] == v.volume || l["persistentvolumeclaim"] == v.claim || l["server"] == v.server || l["storageclass"] == v.class {
				its = append(its, fired[key])
			} else {
				rest = append(rest, fired[key])
			}
		}
		return strings.Join(its, ", "), strings.Join(rest, ", ")
	}
}

// wellAgain is nil once the volume is healthy and its database answers, by samples of after the fault.
func (n *node) wellAgain(v longhornVolume, mended time.Time) func() error {
	return func() error {
		if err := lasted(mended, 20*time.Second); err != nil {
			return err
		}
		for _, expression := range []string{
			fmt.Sprintf(`plumbline_longhorn_volume_robustness{volume=%q, robustness="healthy"} == 1`, v.volume),
			fmt.Sprintf(`rate(loadgen_completed_total{storageclass=%q}[20s]) > 1 and loadgen_oldest_unanswered_seconds{storageclass=%q} < 2`, v.class, v.class),
		} {
			if err := n.some(expression)(); err != nil {
				return err
			}
		}
		return nil
	}
}

func (n *node) killedReplica(v longhornVolume) func() {
	n.must(syscall.Kill(n.replicaProcess(v.replicas[0]), syscall.SIGKILL))
	return nil
}

func (n *node) degraded(v longhornVolume) func() error {
	return n.some(fmt.Sprintf(`plumbline_longhorn_volume_robustness{volume=%q, robustness="degraded"} == 1`, v.volume))
}

func (n *node) stoppedReplica(v longhornVolume) func() {
	pid := n.replicaProcess(v.replicas[2])
	n.must(syscall.Kill(pid, syscall.SIGSTOP))
	// Longhorn may have ended it meanwhile.
	return func() { _ = syscall.Kill(pid, syscall.SIGCONT) }
}

// stuck are the labels of the alert that names the stopped replica.
func stuck(v longhornVolume) string {
	return fmt.Sprintf(`alertname="ReplicaStuck", alertstate="firing", replica=%q`, v.replicas[2])
}

// minute is nil after a minute.
func (n *node) minute(longhornVolume) func() error {
	began := time.Now()
	return func() error { return lasted(began, time.Minute) }
}

// lasted is nil once a time has passed since began.
func lasted(began time.Time, wanted time.Duration) error {
	if passed := time.Since(began); passed < wanted {
		return fmt.Errorf("only %s of %s have passed", passed, wanted)
	}
	return nil
}

func (n *node) killedEngine(v longhornVolume) func() {
	n.must(syscall.Kill(n.engineProcess(v), syscall.SIGKILL))
	return nil
}

// engineProcess returns the process of a volume's engine, 0 if there is none.
func (n *node) engineProcess(v longhornVolume) int {
	n.t.Helper()
	return n.longhornProcess(func(words []string) bool {
		return slices.Contains(words, "controller") && slices.Contains(words, v.volume)
	})
}

// otherEngine is nil once the volume has another engine's process than now.
func (n *node) otherEngine(v longhornVolume) func() error {
	before := n.engineProcess(v)
	return func() error {
		if now := n.engineProcess(v); now == 0 || now == before {
			return fmt.Errorf("the engine's process is %d, and was %d", now, before)
		}
		return nil
	}
}

func (n *node) deletedManager(longhornVolume) func() {
	n.kubectl("delete", "pods", "--namespace=longhorn-system", "--selector=longhorn.io/component=instance-manager", "--wait=false")
	return nil
}

// hibernated has the operator delete the database's pod and keep its claim. A pod that is deleted alone comes back to the volume as it is.
func (n *node) hibernated(v longhornVolume) func() {
	set := func(to string) {
		n.kubectl("annotate", "cluster/postgresql-"+v.class, "--namespace=db-"+v.class, "--overwrite", "cnpg.io/hibernation="+to)
	}
	set("on")
	return func() { set("off") }
}

// noEngine is nil once the volume has no engine's process.
func (n *node) noEngine(v longhornVolume) func() error {
	return func() error {
		if pid := n.engineProcess(v); pid != 0 {
			return fmt.Errorf("the engine's process is still %d", pid)
		}
		return nil
	}
}

// patchVolume sets a field of a volume's specification, in JSON.
func (n *node) patchVolume(v longhornVolume, field string) {
	n.t.Helper()
	n.kubectl("patch", "volumes.longhorn.io", v.volume, "--namespace=longhorn-system", "--type=merge", `--patch={"spec":{`+field+`}}`)
}

func (n *node) setReplicas(v longhornVolume, replicas int) {
	n.patchVolume(v, fmt.Sprintf(`"numberOfReplicas":%d`, replicas))
}

// upgradedEngine has Longhorn replace the volume's engine and replicas, by processes of another image, while its database works.
func (n *node) upgradedEngine(v longhornVolume) func() {
	// Longhorn looks for an engine's image by this name.
	checksum := sha512.Sum512([]byte(otherLonghornImage))
	name := "ei-" + hex.EncodeToString(checksum[:])[:8]
	n.apply("apiVersion: longhorn.io/v1beta2\nkind: EngineImage\nmetadata: {name: " + name + ", namespace: longhorn-system}\nspec: {image: '" + otherLonghornImage + "'}\n")
	n.kubectl("wait", "--for=jsonpath={.status.state}=deployed", "engineimages.longhorn.io/"+name, "--namespace=longhorn-system", "--timeout=5m")
	n.patchVolume(v, `"image":"`+otherLonghornImage+`"`)
	// The replicas' names are new.
	return func() { n.followLonghorn(n.longhornVolume(v.class, v.claim)) }
}

// engineUpgraded is nil once the volume has another engine, of the other image, and its replicas of before are gone.
func (n *node) engineUpgraded(v longhornVolume) func() error {
	other := n.otherEngine(v)
	return func() error {
		if err := other(); err != nil {
			return err
		}
		image, err := n.try("get", "volumes.longhorn.io", v.volume, "--namespace=longhorn-system", "--output=jsonpath={.status.currentImage}")
		if err != nil || image != otherLonghornImage {
			return fmt.Errorf("the volume's image is %q: %v", image, err)
		}
		before, err := n.try("get", "replicas.longhorn.io", v.replicas[0], "--namespace=longhorn-system", "--output=name", "--ignore-not-found")
		if err != nil || before != "" {
			return fmt.Errorf("there is still %s%v", before, err)
		}
		return nil
	}
}

func (n *node) fewerReplicas(v longhornVolume) func() {
	n.setReplicas(v, 2)
	// Longhorn leaves the third one until it is deleted.
	n.kubectl("delete", "replicas.longhorn.io", v.replicas[2], "--namespace=longhorn-system", "--timeout=2m")
	return func() { n.setReplicas(v, 3); testkit.Eventually(n.t, 2*defaultTimeout, n.replicasAre(3)(v)) }
}

func (n *node) replicasAre(replicas int) func(longhornVolume) func() error {
	return func(v longhornVolume) func() error {
		return n.some(fmt.Sprintf(`count by (volume) (plumbline_longhorn_replica_up{volume=%q} == 1) == %d`, v.volume, replicas))
	}
}

func (n *node) managerAway(longhornVolume) func() {
	patch := func(selector string) {
		n.kubectl("patch", "daemonset/longhorn-manager", "--namespace=longhorn-system", "--type=merge", `--patch={"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
	}
	patch(`{"kubernetes.io/hostname":"none"}`)
	return func() {
		patch(`null`)
		n.kubectl("rollout", "status", "daemonset/longhorn-manager", "--namespace=longhorn-system", "--timeout=10m")
	}
}

// managerGone is nil three minutes after the manager's pods are gone.
func (n *node) managerGone(longhornVolume) func() error {
	var gone time.Time
	return func() error {
		pods, err := n.try("get", "pods", "--namespace=longhorn-system", "--selector=app=longhorn-manager", "--output=name")
		if err != nil || pods != "" {
			return fmt.Errorf("there is still %s%v", pods, err)
		}
		if gone.IsZero() {
			gone = time.Now()
		}
		return lasted(gone, 3*time.Minute)
	}
}

func (n *node) manySnapshots(v longhornVolume) func() {
	var all strings.Builder
	for i := range 101 {
		fmt.Fprintf(&all, "---\napiVersion: longhorn.io/v1beta2\nkind: Snapshot\nmetadata: {name: e2e-%d, namespace: longhorn-system}\nspec: {volume: %s, createSnapshot: true}\n", i, v.volume)
	}
	n.apply(all.String())
	return nil
}

// snapshotsAre is nil once each replica has at least so many.
func (n *node) snapshotsAre(snapshots int) func(longhornVolume) func() error {
	return func(v longhornVolume) func() error {
		return n.some(fmt.Sprintf(`min by (volume) (plumbline_longhorn_replica_snapshots{volume=%q}) >= %d`, v.volume, snapshots))
	}
}

// tooManySnapshots are the labels of the alert, which fires after a quarter of an hour.
func tooManySnapshots(longhornVolume) string { return `alertname="VolumeTrouble", trouble="snapshots"` }
