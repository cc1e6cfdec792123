package main

import (
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

// nvmeUserVolume is the target's whole name: no naming rule matches it, so it is the volume's as well.
const nvmeUserVolume = "nqn.2026-11.io.plumbline:pvc-nvme-user"

// useUserNVMe uses a target in user space, the tests' own: the kernel's initiator is the same.
func useUserNVMe(t *rig.Scope, a *agent, program string, out *outcome.Remote) {
	target := rig.NewUserNVMeTarget(t, nvmeUserVolume, program, diskDelay)
	a.followTargets(t, 1)
	n := &remotePaths{agent: a, targets: target, volume: nvmeUserVolume, disks: target.Connect(), live: "live", out: out}
	n.devices = []string{rig.NVMeHead(n.disks[0])}
	n.follow(t)
	n.countUser(t)
	n.delayUserDisk(t)
	n.delayUserLink(t)
	n.leave(t)
}
