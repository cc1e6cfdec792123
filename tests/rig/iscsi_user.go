package rig

import (
	"os/exec"
	"time"
)

// The ports at which programs in user space are managed, where nothing else has them.
const managementPort = 3261

// NewUserISCSITargets sets up two targets in user space, each serving a disk in memory of 16 MiB at its first LUN for
// disks, and starts the initiator's daemon: tgt, of which Longhorn V1 has one, with LUN 1; and istgt, of
// which cStor has one, with LUN 0. The disk of tgt takes as long as delay, and has no page cache above it.
func NewUserISCSITargets(t T, tgt, istgt string, delay time.Duration) *ISCSITargets {
	n := &ISCSITargets{Targets: newTargets(t, "user", 97, iscsiPort, "iscsi_tcp", "sd_mod")}
	n.startDaemon()
	slow := n.program(tgt, delay)
	slow.direct = true
	slow.serveTgt()
	n.program(istgt, 0).serveIstgt()
	// Before the programs end: else no target responds when sessions end.
	t.Cleanup(n.end)
	return n
}

// program makes a target for a program within a network of its own.
func (n *ISCSITargets) program(name string, delay time.Duration) *ISCSIProgram {
	one := n.Targets.add(name, delay)
	n.call("ip", "-n", one.space, "link", "set", "lo", "up")
	return &ISCSIProgram{
		t: n.t, Name: name, Address: one.Address, network: one.host + "/24", disk: "/dev/" + one.Disk, management: managementPort,
		within: func(cmd *exec.Cmd) *exec.Cmd {
			inside := exec.Command("nsenter", append([]string{"--net=/run/netns/" + one.space}, cmd.Args...)...)
			inside.Env = cmd.Env
			return inside
		},
	}
}
