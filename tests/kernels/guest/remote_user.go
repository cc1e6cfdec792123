package main

import (
	"fmt"
	"time"

	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

// The times at both ends of a target in user space.
const (
	pathMetric   = "plumbline_volume_path_seconds"
	targetMetric = "plumbline_volume_target_seconds"
)

// followTargets waits until so many targets in user space are tracked: only then a login is seen, which has the
// target's name.
func (a *agent) followTargets(t *rig.Scope, targets int) {
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := a.scrape()
		if n := m.Sum("plumbline_volume_target_processes"); err == nil && n != float64(targets) {
			err = fmt.Errorf("%v targets in user space are followed", n)
		}
		return err
	})
}

// countUser compares counts of both ends with the kernel's own of the path.
func (n *remotePaths) countUser(t *rig.Scope) {
	ends := map[string]string{"initiator": pathMetric, "target": targetMetric}
	n.named(t, ends, func(int) []string { return []string{"volume", n.volume} })
	m, counted := n.exerciseAlone(t)
	for op := range exercised {
		for end, metric := range ends {
			n.compare(t, fmt.Sprintf("%s's %s, %s's", n.volume, op, end), counted[op], since(m, metric, "volume", n.volume, "op", op))
		}
	}
}

// readUser reads so often, and returns the mean times of both ends, and what was waited for.
func (n *remotePaths) readUser(t *rig.Scope, reads int) (path, target float64, waited time.Duration) {
	m := n.agent.metrics(t)
	waited = n.use(t, n.devices[0], readOnce, reads)
	labels := []string{"volume", n.volume, "op", "read"}
	return n.mean(t, m, float64(reads), pathMetric, labels...), n.mean(t, m, float64(reads), targetMetric, labels...), waited
}

// delayUserDisk compares what the target's end measures of its disk, which is slow.
func (n *remotePaths) delayUserDisk(t *rig.Scope) {
	busy := n.diskBusy(t, n.slowDisk)
	_, target, waited := n.readUser(t, remoteRequests)
	n.note("a disk's delay, of a target in user space", outcome.Delay{Put: diskDelay.Seconds(), Truth: (n.diskBusy(t, n.slowDisk) - busy) / remoteRequests,
		Waited: waited.Seconds(), Seen: target})
}

// delayUserLink makes the target's link slow, and compares that with the difference of both ends.
func (n *remotePaths) delayUserLink(t *rig.Scope) {
	network := func() (network float64, waited time.Duration) {
		path, target, waited := n.readUser(t, linkRequests)
		return path - target, waited
	}
	before := undelayed(t, network)
	alone := n.roundTrip(t, n.slowLink)
	n.targets.SlowLink(n.slowLink, linkDelay)
	truth := n.roundTrip(t, n.slowLink) - alone
	seen, waited := network()
	n.targets.SlowLink(n.slowLink, 0)
	n.note("a link's delay, to a target in user space", outcome.Delay{Put: linkDelay.Seconds(), Truth: truth, Alone: before,
		Waited: waited.Seconds(), Seen: seen})
}
