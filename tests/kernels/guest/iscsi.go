package main

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	iscsiVolume  = "pvc-iscsi"
	iscsiTargets = 2
	iscsiPrefix  = "iqn.2026-11.io.plumbline:"
	// leaveDelay lets the agent scan a path that leaves several times.
	leaveDelay = 3 * time.Second
	// iscsiName is the agent's flag for how they are named.
	iscsiName = `guest=iqn\.2026-11\.io\.plumbline:(?P<volume>.+)-r-(?P<replica>[0-9]+)`
)

// measureISCSI uses two targets over iSCSI by open-iscsi.
func measureISCSI(t *rig.Scope, a *agent, out *outcome.Outcome) {
	if !out.ISCSI.Works {
		return
	}
	logf("%d iSCSI targets", iscsiTargets)
	t.Check(rig.Run(logf, func(t *rig.Scope) { useISCSI(t, a, &out.ISCSIPaths) }))
	t.Check(rig.Run(logf, func(t *rig.Scope) { useUserISCSI(t, a, &out.ISCSIPaths) }))
}

func useISCSI(t *rig.Scope, a *agent, out *outcome.Remote) {
	var names []string
	for i := range iscsiTargets {
		names = append(names, fmt.Sprintf("%s%s-r-%d", iscsiPrefix, iscsiVolume, i))
	}
	const slowLink, slowDisk = 0, 1
	targets := rig.NewISCSITargets(t, names, map[int]time.Duration{slowDisk: diskDelay})
	n := &remotePaths{agent: a, targets: targets, volume: iscsiVolume, disks: targets.Connect(), live: "logged_in", out: out,
		slowLink: slowLink, slowDisk: slowDisk}
	for _, disk := range n.disks {
		n.devices = append(n.devices, "/dev/"+filepath.Base(disk))
	}
	n.follow(t)
	n.count(t)
	n.fail(t)
	n.delay(t)
	n.stall(t)
	// Its disk is gone from sysfs long before its last flush ends.
	targets.SlowLink(slowLink, leaveDelay)
	n.leave(t)
	targets.SlowLink(slowLink, 0)
	targets.Connect()
	n.follow(t)
	logf("scans while a disk is set up anew: %d", targets.ScanWhileSetUp(slowLink, 40))
	a.flickered = true
	n.leave(t)
}
