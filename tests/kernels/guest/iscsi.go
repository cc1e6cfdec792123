package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	iscsiVolume  = "pvc-iscsi"
	iscsiTargets = 2
	iscsiPrefix  = "iqn.2026-11.io.plumbline:"
	// iscsiName tells the agent how they are named.
	iscsiName = `guest=iqn\.2026-11\.io\.plumbline:(?P<volume>.+)-r-(?P<replica>[0-9]+)`
)

// measureISCSI uses two targets over iSCSI by open-iscsi.
func measureISCSI(t *rig.Scope, a *agent, out *outcome.Outcome) {
	if !out.ISCSI.Works {
		return
	}
	say("%d iSCSI targets", iscsiTargets)
	t.Check(rig.Run(say, func(t *rig.Scope) { useISCSI(t, a, &out.ISCSIPaths) }))
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
	giveUp(t, n)
	n.leave(t)
}

// giveUp cuts a link for longer than the kernel's patience: the command is aborted and sent again. Each time that the kernel counts a
// command of the disk as sent, it has ended or is counted as unanswered. Kernels before 6.3 count no time-outs, and count as sent what the
// driver had no room for.
func giveUp(t *rig.Scope, n *remotePaths) {
	const cut = 0
	device := filepath.Join(n.disks[cut], "device")
	count := func(name string) uint64 {
		text, err := os.ReadFile(filepath.Join(device, name))
		t.Check(err)
		v, err := strconv.ParseUint(strings.TrimSpace(string(text)), 0, 64)
		t.Check(err)
		return v
	}
	if _, err := os.Stat(filepath.Join(device, "iotmo_cnt")); err != nil {
		say("this kernel does not count time-outs: no command is given up")
		return
	}
	wait := func(seconds string) { t.Check(os.WriteFile(filepath.Join(device, "timeout"), []byte(seconds), 0o644)) }
	labels := []string{"volume", n.volume, "replica", n.targets.Of(cut).Address}
	unanswered := func(m agentproc.Metrics) float64 {
		return m.Sum("plumbline_replica_request_unanswered_total", labels...)
	}
	before, late, m := count("iorequest_cnt"), count("iotmo_cnt"), n.agent.metrics(t)
	wait("2")
	n.targets.CutLink(cut, true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.use(t, n.devices[cut], readOnce, 1)
	}()
	// The kernel counts a time-out when it begins to abort; before that it gives more time once, as something was sent.
	rig.Eventually(t, patience, func() error {
		if count("iotmo_cnt") == late {
			return errors.New("the command has not timed out")
		}
		return nil
	})
	wait("300")
	n.targets.CutLink(cut, false)
	<-done
	n.compare(t, "initiator's commands, some given up", count("iorequest_cnt")-before, func(now agentproc.Metrics) float64 {
		ended := now.Sum("plumbline_replica_request_duration_seconds", labels...) - m.Sum("plumbline_replica_request_duration_seconds", labels...)
		return ended + unanswered(now) - unanswered(m)
	})
	given := unanswered(n.agent.metrics(t)) - unanswered(m)
	say("given up: %v", given)
	if given == 0 {
		t.Fatalf("no command is told as given up")
	}
}
