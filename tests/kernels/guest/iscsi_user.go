package main

import (
	"fmt"
	"path/filepath"
	"time"

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

// userTarget is a target in user space, and the metric that tells of it.
type userTarget struct{ volume, metric string }

var userTargets = []userTarget{
	{tgtVolume, "plumbline_volume_target_seconds"}, // Longhorn's engine is behind it, and has the frontend
	{istgtVolume, "plumbline_volume_frontend_seconds"},
}

// useUserISCSI uses targets in user space: the kernel's initiator is the same, and the other end is another one. They take turns, so that
// the names of the one's disks, and mostly their memory, too, are at once the other's.
func useUserISCSI(t *rig.Scope, a *agent, out *outcome.Remote) {
	const slowDisk, slowLink = 0, 1
	targets := rig.NewUserISCSITargets(t, tgtTarget, istgtTarget, diskDelay)
	// A login tells the target's name, and is to be seen.
	rig.Eventually(t, patience, func() error {
		m, err := a.scrape()
		if n := m.Sum("plumbline_volume_target_processes"); err == nil && n != float64(len(userTargets)) {
			err = fmt.Errorf("%v targets in user space are followed", n)
		}
		return err
	})
	for turn := range userTurns {
		for i, one := range userTargets {
			disk := targets.ConnectTo(i)
			n := &remotePaths{agent: a, targets: targets, volume: one.volume, disks: []string{disk}, devices: []string{"/dev/" + filepath.Base(disk)},
				live: "logged_in", out: out, slowDisk: slowDisk, slowLink: slowLink}
			n.follow(t)
			n.countUser(t, one)
			if turn == 0 {
				n.delayUser(t, one, i)
			}
			targets.ScanWhileSetUp(i, 10)
			targets.DisconnectFrom(i)
		}
	}
}

// since is a sum of a histogram's counts since m, with these labels.
func since(m agentproc.Metrics, metric string, labels ...string) func(agentproc.Metrics) float64 {
	return func(now agentproc.Metrics) float64 { return now.Sum(metric, labels...) - m.Sum(metric, labels...) }
}

// countUser compares counts of both ends with the kernel's own of the path: a target may have no cache, and gets no flushes then.
func (n *remotePaths) countUser(t *rig.Scope, one userTarget) {
	before, m := n.statistics(t), n.agent.metrics(t)
	n.exercise(t)
	after := n.statistics(t)
	for op, made := range exercised {
		counted := after[op] - before[op]
		if counted != made && (op != "sync" || counted != 0) {
			t.Fatalf("the kernel counted %d of %s on the path, and %d were made: something else uses it", counted, op, made)
		}
		for end, metric := range map[string]string{"initiator": "plumbline_volume_path_seconds", "target": one.metric} {
			n.compare(t, fmt.Sprintf("%s's %s, %s's", one.volume, op, end), counted, since(m, metric, "volume", one.volume, "op", op))
		}
	}
}

// delayUser compares the delay of a link, or of a disk, with what both ends' times say of it.
func (n *remotePaths) delayUser(t *rig.Scope, one userTarget, i int) {
	read := func() (path, target float64, waited time.Duration) {
		m := n.agent.metrics(t)
		waited = n.use(t, n.devices[0], readOnce, remoteRequests)
		mean := func(metric string) float64 {
			labels := []string{"volume", n.volume, "op", "read"}
			f := since(m, metric, labels...)
			now := n.agent.settled(t, remoteRequests, f)
			return (now.Seconds(metric, labels...) - m.Seconds(metric, labels...)) / f(now)
		}
		return mean("plumbline_volume_path_seconds"), mean(one.metric), waited
	}
	if i == n.slowDisk {
		busy := n.diskBusy(t, i)
		_, target, waited := read()
		n.note("a disk's delay, of a target in user space", outcome.Delay{Put: diskDelay.Seconds(), Truth: (n.diskBusy(t, i) - busy) / remoteRequests,
			Waited: waited.Seconds(), Seen: target})
	}
	if i == n.slowLink {
		path, target, _ := read()
		before, alone := path-target, n.roundTrip(t, i)
		n.targets.SlowLink(i, linkDelay)
		truth := n.roundTrip(t, i) - alone
		path, target, waited := read()
		n.targets.SlowLink(i, 0)
		n.note("a link's delay, to a target in user space", outcome.Delay{Put: linkDelay.Seconds(), Truth: truth, Waited: waited.Seconds(), Seen: path - target - before})
	}
}
