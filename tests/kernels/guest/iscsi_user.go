package main

import (
	"fmt"
	"path/filepath"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

// Volumes as Longhorn's first engine names its target, which is a tgt, and cStor its own, which is an istgt.
const (
	tgtVolume   = "pvc-tgt"
	tgtTarget   = "iqn.2019-10.io.longhorn:" + tgtVolume
	istgtVolume = "pvc-istgt"
	istgtTarget = "iqn.2016-09.com.openebs.cstor:" + istgtVolume
	userTurns   = 2
)

// useUserISCSI uses targets in user space: the kernel's initiator is the same, and the other end is another one. They take turns, so that
// the names of the one's disks, and mostly their memory, too, are at once the other's.
func useUserISCSI(t *rig.Scope, a *agent, out *outcome.Remote) {
	targets := rig.NewUserISCSITargets(t, tgtTarget, istgtTarget)
	for range userTurns {
		for i, volume := range []string{tgtVolume, istgtVolume} {
			disk := targets.ConnectTo(i)
			n := &remotePaths{agent: a, targets: targets, volume: volume, disks: []string{disk}, devices: []string{"/dev/" + filepath.Base(disk)},
				live: "logged_in", out: out}
			n.follow(t)
			n.countInitiator(t, fmt.Sprintf("%s's", volume))
			targets.ScanWhileSetUp(i, 10)
			targets.DisconnectFrom(i)
		}
	}
}

// countInitiator compares counts with the kernel's own of the path: a target may have no cache, and gets no flushes then.
func (n *remotePaths) countInitiator(t *rig.Scope, whose string) {
	before, m := n.statistics(t), n.agent.metrics(t)
	n.exercise(t)
	after := n.statistics(t)
	for op, made := range exercised {
		if counted := after[op] - before[op]; counted != made && (op != "sync" || counted != 0) {
			t.Fatalf("the kernel counted %d of %s on the path, and %d were made: something else uses it", counted, op, made)
		}
		n.compare(t, whose+" "+op, after[op]-before[op], func(now agentproc.Metrics) float64 {
			const metric = "plumbline_volume_path_seconds"
			return now.Sum(metric, "volume", n.volume, "op", op) - m.Sum(metric, "volume", n.volume, "op", op)
		})
	}
}
