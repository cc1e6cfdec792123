package main

import (
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const nvmeUserVolume = "pvc-nvme-user"

// useUserNVMe uses a target in user space, the tests' own: the kernel's initiator is the same.
func useUserNVMe(t *rig.Scope, a *agent, program string, out *outcome.Remote) {
	target := rig.NewUserNVMeTarget(t, "nqn.2026-11.io.plumbline:"+nvmeUserVolume, program, diskDelay)
	a.followTargets(t, 1)
	one := userTarget{nvmeUserVolume, "plumbline_volume_frontend_seconds"}
	n := &remotePaths{agent: a, targets: target, volume: one.volume, disks: target.Connect(), live: "live", out: out}
	n.devices = []string{rig.NVMeHead(n.disks[0])}
	n.follow(t)
	n.countUser(t, one)
	n.delayUserDisk(t, one)
	n.delayUserLink(t, one)
	n.leave(t)
}
