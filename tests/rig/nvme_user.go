package rig

import (
	"net"
	"os/exec"
	"strconv"
	"time"

	"github.com/plumbline/plumbline/tests/freeport"
)

// NewUserNVMeTarget sets up a target in user space, a program of tests/nvmetcp/target, that serves a disk of 16 MiB in
// memory that takes as long as delay. The program is within a network of its own, and gets more arguments if there are
// any.
func NewUserNVMeTarget(t T, nqn, program string, delay time.Duration, args ...string) *NVMeTargets {
	n := &NVMeTargets{Targets: newTargets(t, "nvmeu", 96, nvmePort, "nvme-tcp"), served: []string{nqn}}
	n.raiseTimeouts()
	t.Cleanup(n.end)
	one := n.Targets.add(nqn, delay)
	n.Program = Start(t, exec.Command("nsenter", append([]string{"--net=/run/netns/" + one.space, program,
		"--listen=" + net.JoinHostPort(one.host, strconv.Itoa(nvmePort)), "--nqn=" + nqn, "--disk=/dev/" + one.Disk}, args...)...))
	// Before the program ends: else no target responds when connections end.
	t.Cleanup(n.leave)
	n.Program.Await(t, func() error { return freeport.Listening(one.Address) })
	return n
}
