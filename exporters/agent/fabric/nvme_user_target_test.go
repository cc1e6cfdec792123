package fabric

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/nvmetcp"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	longhornVolume  = "pvc-nvme-target"
	longhornReplica = "nqn.2023-01.io.longhorn.spdk:" + longhornVolume + "-r-1a2b"
	mayastorUUID    = "0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e"
	mayastorVolume  = "nqn.2019-05.io.openebs:" + mayastorUUID
)

// newNVMeUserTargetBench is a userTargetBench that follows this very process, which has the target and the host in it.
func newNVMeUserTargetBench(t *testing.T) *userTargetBench {
	t.Helper()
	b := newUserTargetBench(t)
	name, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	b.collector, err = NewNVMe(collector.Options{Log: slog.New(slog.NewTextHandler(collectortest.Log{T: t}, nil)), Node: "here", AttachMode: collectortest.AttachMode()},
		Options{UserTargets: []string{strings.TrimSpace(string(name))}})
	if err != nil {
		t.Fatal(err)
	}
	b.show(os.Getpid())
	return b
}

// nvmeTarget serves a file; every second read ends without a response.
func nvmeTarget(t *testing.T, nqn string) *nvmetcp.Target {
	t.Helper()
	testkit.NeedBPF(t)
	file, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	if err := file.Truncate(userTargetDisk); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	target, err := nvmetcp.Start(l, nvmetcp.Options{NQN: nqn, Disk: file, Size: userTargetDisk, Queues: 3, Workers: 4, ShortEvery: 2, BadLBA: userTargetDisk/512 - 8, BadBlocks: 8})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	return target
}

const (
	nvmeQueues = 3
	nvmeRounds = 20
)

// nvmeLoad writes, reads and flushes by all queues at once: within the command, and with room requested once and
// several times.
func nvmeLoad(t *testing.T, h *nvmetcp.Host) (commands map[string]uint64, bytes map[string]float64) {
	t.Helper()
	var queues errgroup.Group
	sizes := []int{8, 64, 400}
	for queue := range nvmeQueues {
		queues.Go(func() error {
			lba := uint64(queue * 1024)
			for range nvmeRounds {
				for _, blocks := range sizes {
					if err := h.Write(queue, lba, make([]byte, blocks*512)); err != nil {
						return err
					}
					if _, err := h.Read(queue, lba, blocks); err != nil {
						return err
					}
				}
				if err := h.Flush(queue); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := queues.Wait(); err != nil {
		t.Fatal(err)
	}
	const n = nvmeQueues * nvmeRounds
	moved := 0.0
	for _, blocks := range sizes {
		moved += float64(n * blocks * 512)
	}
	return map[string]uint64{"read": 3 * n, "write": 3 * n, "sync": n}, map[string]float64{"read": moved, "write": moved}
}

// Each command to a target over NVMe/TCP in user space counts once, with its bytes, under the name that the host
// connects to, with and without digests, by several queues; those of the controller's own queue do not.
func TestNVMeUserTargetCounts(t *testing.T) {
	target := nvmeTarget(t, mayastorVolume)
	b := newNVMeUserTargetBench(t)
	b.start()
	for i := range 4 {
		o := nvmetcp.HostOptions{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0, NoFlowControl: true}
		h, err := nvmetcp.Connect(target.Address(), mayastorVolume, nvmeQueues, o)
		if err != nil {
			t.Fatal(err)
		}
		before := b.Read()
		commands, bytes := nvmeLoad(t, h)
		const volume = "pvc-" + mayastorUUID
		r := b.counted(before, volume, commands, bytes)
		if n := r.Value(targetPrefix+"_connections", operationtest.Match{"volume": volume, "backend": "mayastor"}); n != nvmeQueues {
			t.Errorf("%v connections with %+v", n, o)
		}
		if _, err := h.Read(1, userTargetDisk/512-8, 8); err == nil {
			t.Fatal("a broken place can be read")
		}
		b.Eventually("an error is not counted", func(r operationtest.Reading) bool {
			return r.Value(targetPrefix+"_errors_total", operationtest.Match{"volume": volume, "op": "read"}) == float64(i+1)
		})
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		b.Eventually("the connections are still there", func(r operationtest.Reading) bool { return r.Value(targetPrefix+"_connections", nil) == 0 })
	}
	r := b.Read()
	r.Clean(t)
	if n := r.Count(targetPrefix+"_seconds", operationtest.Match{"op": "other"}); n != 0 {
		t.Errorf("%d commands of the controller's own queue are counted", n)
	}
}

// A replica's target is known by its address, as at the engine's end.
func TestNVMeUserTargetReplica(t *testing.T) {
	target := nvmeTarget(t, longhornReplica)
	b := newNVMeUserTargetBench(t)
	b.start()
	h, err := nvmetcp.Connect(target.Address(), longhornReplica, nvmeQueues, nvmetcp.HostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	commands, _ := nvmeLoad(t, h)
	one := operationtest.Match{"volume": longhornVolume, "address": target.Address(), "backend": "longhorn-v2", "op": "write"}
	b.Eventually("the replica's writes are not counted", func(r operationtest.Reading) bool {
		return r.Count(operationtest.ServiceMetric, one) == commands["write"]
	})
	b.Read().Clean(t)
}

// Of connections that are older than the agent everything counts soon, whatever their digests, under no name.
func TestNVMeUserTargetAdopted(t *testing.T) {
	for _, i := range []int{0, 3} {
		o := nvmetcp.HostOptions{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0, NoFlowControl: true}
		t.Run(fmt.Sprint(o.HeaderDigest, o.DataDigest), func(t *testing.T) {
			target := nvmeTarget(t, mayastorVolume)
			b := newNVMeUserTargetBench(t)
			h, err := nvmetcp.Connect(target.Address(), mayastorVolume, nvmeQueues, o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = h.Close() })
			b.start()
			nvmeLoad(t, h) // each direction is adopted meanwhile
			b.Eventually("something is under way", func(r operationtest.Reading) bool {
				return r.Count(targetPrefix+"_seconds", operationtest.Match{"volume": "other"}) > 0 && r.Value(targetPrefix+"_in_flight", nil) == 0
			})
			before := b.Read()
			commands, bytes := nvmeLoad(t, h)
			b.counted(before, "other", commands, bytes)
		})
	}
}
