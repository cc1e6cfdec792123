package main

import (
	"fmt"
	"os"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	nvmeVolume  = "pvc-nvme"
	nvmeTargets = 3
	// A volume as Mayastor names it.
	nvmeSharedUUID = "0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e"
	nvmeShared     = "nqn.2019-05.io.openebs:" + nvmeSharedUUID
)

// measureNVMe uses three targets over NVMe/TCP, as Longhorn V2 names its replicas.
func measureNVMe(t *rig.Scope, a *agent, target string, out *outcome.Outcome) {
	if !out.NVMe.Works {
		return
	}
	logf("%d NVMe/TCP targets", nvmeTargets)
	t.Check(rig.Run(logf, func(t *rig.Scope) { useNVMe(t, a, &out.NVMePaths) }))
	t.Check(rig.Run(logf, func(t *rig.Scope) { useUserNVMe(t, a, target, &out.NVMePaths) }))
}

func useNVMe(t *rig.Scope, a *agent, out *outcome.Remote) {
	var names []string
	for i := range nvmeTargets {
		names = append(names, fmt.Sprintf("nqn.2023-01.io.longhorn.spdk:%s-r-0%d", nvmeVolume, i))
	}
	const slowLink, slowDisk = 1, 2
	targets := rig.NewNVMeTargets(t, names, map[int]time.Duration{slowDisk: diskDelay})
	n := &nvmePaths{&remotePaths{agent: a, targets: targets, volume: nvmeVolume, disks: targets.Connect(), live: "live", out: out,
		slowLink: slowLink, slowDisk: slowDisk}, targets}
	for _, disk := range n.disks {
		n.devices = append(n.devices, rig.NVMeHead(disk))
	}
	n.follow(t)
	n.count(t)
	n.fail(t)
	n.delay(t)
	n.stall(t)
	n.switchPaths(t)
	n.leave(t)
}

// nvmePaths are those to the targets, which can have several paths to one volume.
type nvmePaths struct {
	*remotePaths
	targets *rig.NVMeTargets
}

// switchPaths uses a volume by two paths, one after the other: its requests are counted on the path that they took.
func (n *nvmePaths) switchPaths(t *rig.Scope) {
	const first, second = 0, 1
	paths := n.targets.Share(nvmeShared, first, second)
	path := func(m agentproc.Metrics, i int) float64 {
		return m.Sum("plumbline_volume_path_seconds", "volume", "pvc-"+nvmeSharedUUID, "backend", "mayastor", "path", n.targets.Of(i).Address, "op", "write")
	}
	state := func(i int, state string) {
		rig.Eventually(t, rig.DefaultTimeout, func() error {
			m, err := n.agent.scrape()
			if err == nil && m.Sum("plumbline_volume_path_state", "volume", "pvc-"+nvmeSharedUUID, "path", n.targets.Of(i).Address, "ana_state", state) != 1 {
				err = fmt.Errorf("the path to %s is not reported as %s: %v", n.targets.Of(i).Address, state, m["plumbline_volume_path_state"])
			}
			return err
		})
	}
	write := func() {
		n.use(t, rig.NVMeHead(paths[0]), func(f *os.File, page []byte) error {
			_, err := f.WriteAt(page, 0)
			return err
		}, remoteRequests)
	}
	for turn, use := range []int{first, second} {
		n.targets.Allow(first+second-use, false)
		write()
		state(use, "optimized")
		state(first+second-use, "inaccessible")
		rig.Eventually(t, rig.DefaultTimeout, func() error {
			m, err := n.agent.scrape()
			down := func(i int) float64 {
				return m.Sum("plumbline_volume_path_down_seconds", "volume", "pvc-"+nvmeSharedUUID, "path", n.targets.Of(i).Address)
			}
			if err == nil && (down(use) > 0 || down(first+second-use) < 2) {
				err = fmt.Errorf("the path in use is down for %v s, the other one for %v s", down(use), down(first+second-use))
			}
			return err
		})
		m := n.agent.metrics(t)
		before := n.statisticsOf(t, paths)
		write()
		after := n.statisticsOf(t, paths)
		if made := after["write"] - before["write"]; made != remoteRequests {
			t.Fatalf("the kernel counted %d writes of the volume's paths, and %d were made", made, remoteRequests)
		}
		n.compare(t, fmt.Sprintf("path %d's writes", turn+1), remoteRequests, func(now agentproc.Metrics) float64 { return path(now, use) - path(m, use) })
		if other := first + second - use; path(n.agent.metrics(t), other) != path(m, other) {
			t.Fatalf("writes are reported for a path that is not used")
		}
		n.targets.Allow(first+second-use, true)
	}
	state(first, "optimized")
	// What met a closed path was refused, and went out again on the other one.
	refused := n.agent.metrics(t).Sum("plumbline_volume_path_errors_total", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	n.compare(t, "the volume's target's writes", 4*remoteRequests+uint64(refused), func(now agentproc.Metrics) float64 {
		return now.Sum("plumbline_volume_frontend_seconds", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	})
	n.compare(t, "the volume's target's refusals", uint64(refused), func(now agentproc.Metrics) float64 {
		return now.Sum("plumbline_volume_frontend_errors_total", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	})
}
