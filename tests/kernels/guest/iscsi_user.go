package main

import (
	"path/filepath"

	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

// Volumes as Longhorn V1 names its target, which is a tgt, and cStor its own, which is an istgt.
const (
	tgtVolume   = "pvc-tgt"
	tgtTarget   = "iqn.2019-10.io.longhorn:" + tgtVolume
	istgtVolume = "pvc-istgt"
	istgtTarget = "iqn.2016-09.com.openebs.cstor:" + istgtVolume
	userTurns   = 2
)

var userTargets = []string{
	tgtVolume, istgtVolume,
}

// useUserISCSI uses targets in user space: the kernel's initiator is the same, and the other end is another one. They
// take turns, so that the names of the one's disks, and mostly their memory, too, are at once the other's.
func useUserISCSI(t *rig.Scope, a *agent, out *outcome.Remote) {
	const slowDisk, slowLink = 0, 1
	targets := rig.NewUserISCSITargets(t, tgtTarget, istgtTarget, diskDelay)
	a.followTargets(t, len(userTargets))
	for turn := range userTurns {
		for i, volume := range userTargets {
			disk := targets.ConnectTo(i)
			n := &remotePaths{agent: a, targets: targets, volume: volume, disks: []string{disk}, devices: []string{"/dev/" + filepath.Base(disk)},
				live: "logged_in", out: out, slowDisk: slowDisk, slowLink: slowLink}
			n.follow(t)
			n.countUser(t)
			switch {
			case turn > 0:
			case i == slowDisk:
				n.delayUserDisk(t)
			case i == slowLink:
				n.delayUserLink(t)
			}
			targets.ScanWhileSetUp(i, 10)
			targets.DisconnectFrom(i)
		}
	}
}
