package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/freeport"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What the collectors add for a process that is not followed, one after the other on a node that has something for each:
// two calls, a byte sent and received.
func BenchmarkStranger(b *testing.B) {
	testkit.NeedBPF(b)
	testkit.Tool(b, "longhorn-engine")
	rig.NewVolume(b, 1).Start()
	disk := filepath.Join(b.TempDir(), "disk")
	if err := errors.Join(os.WriteFile(disk, nil, 0o600), os.Truncate(disk, 16<<20)); err != nil {
		b.Fatal(err)
	}
	rig.NewTgt(b, "iqn.2026-11.io.plumbline:stranger", disk)
	startNVMeTarget(b, disk)

	s := settings{Options: collectortest.Here()}
	s.Dispatcher = collector.NewDispatcher(s.ProcFS)
	sendAndReceive := collectortest.Exchange(b)
	// start starts a collector, and waits until it follows what there is.
	start := func(name, follows string) {
		i := slices.IndexFunc(collectors, func(e entry) bool { return e.name == name })
		c, err := collectors[i].make(s)
		if err == nil {
			err = c.Start(context.Background())
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = c.Close() })
		m := operationtest.NewMeter(b)
		m.Add(s.Log, name, c)
		if follows != "" {
			m.Eventually("nothing is followed", func(r operationtest.Reading) bool { return r.Value(follows, nil) > 0 })
		}
	}
	b.Run("no collector", sendAndReceive)
	start("query", "")
	b.Run("query", sendAndReceive)
	start("replica", "plumbline_replica_processes")
	b.Run("query and replica", sendAndReceive)
	start("nvme", "plumbline_volume_target_processes")
	start("iscsi", "plumbline_volume_target_processes")
	b.Run("query, replica, nvme and iscsi", sendAndReceive)
}

// startNVMeTarget starts a target in user space that serves a file.
func startNVMeTarget(b *testing.B, disk string) {
	b.Helper()
	program := filepath.Join(b.TempDir(), "nvmf_tgt")
	build := exec.Command("go", "build", "-o", program, "./tests/nvmetcp/target")
	build.Dir = testkit.Root()
	if out, err := build.CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	address, err := freeport.Address()
	if err != nil {
		b.Fatal(err)
	}
	p := rig.Start(b, exec.Command(program, "--listen="+address, "--nqn=nqn.2026-11.io.plumbline:stranger", "--disk="+disk))
	b.Cleanup(p.Stop)
	p.Await(b, func() error { return freeport.Listening(address) })
}
