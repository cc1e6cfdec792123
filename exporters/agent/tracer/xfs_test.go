package tracer_test

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/tracer"
	"github.com/plumbline/plumbline/exporters/agent/tracer/tracertest"
	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// On XFS tasks of the kernel end much of a file's work. With new files, whose blocks are made while they are written, a
// commit's time is the device's all the same, and no helper's.
func TestTraceXFS(t *testing.T) {
	collectortest.OwnMounts(t)
	disk, err := rig.NewSlowDisk(t, t.TempDir(), 512<<20)
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	a := tracertest.Start(t, tracer.Options{Sample: 1, Slowest: 1})
	_, c := tracertest.ServerOn(t, a, "off", func(mount string) error { return rig.MountXFS(t, disk.Device, mount) })
	const commits, delay = 30, 20 * time.Millisecond
	disk.Writes.Set(delay)
	disk.Syncs.Set(delay)
	begin := collector.Monotonic()
	for range commits {
		querytest.Run(t, c, tracertest.CommitOf8KB)
	}
	disk.Writes.Set(0)
	disk.Syncs.Set(0)
	chains := a.Settled(tracertest.Name, begin)
	tracertest.WantExact(t, chains, commits)
	shares := map[string]time.Duration{}
	for _, c := range chains {
		for layer, ns := range c.Root.Shares() {
			shares[layer] += time.Duration(ns)
		}
	}
	t.Log(shares)
	// A write and a flush each at least. One that is kept from the CPU meanwhile waits for the rest only.
	kept := shares[layers.Runqueue] + shares[layers.CPU]
	if shares[layers.Device]+kept < commits*2*delay || shares[layers.Device] < commits*delay || shares[layers.FileSystem] > shares[layers.Device]/4 {
		t.Errorf("%d commits waited %v for the device, %v in the file system and for helpers", commits, shares[layers.Device], shares[layers.FileSystem])
	}
}
