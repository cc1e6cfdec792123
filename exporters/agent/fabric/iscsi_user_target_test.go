package fabric

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/initiator"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Targets in user space, the real ones, and an initiator of the tests.

const (
	userTargetDisk   = 16 << 20
	userTargetVolume = "pvc-target"
)

// targetPrefix is what the metrics of a target in user space begin with.
const targetPrefix = "plumbline_volume_target"

// realTarget is a real target, named as the engine does that has one.
type realTarget struct {
	name, target, backend string
	start                 func(t rig.T, name, file string) *rig.ISCSIProgram
}

var realTargets = []realTarget{
	{"tgtd", "iqn.2019-10.io.longhorn:" + userTargetVolume, "longhorn-v1", rig.NewTgt},
	{"istgt", "iqn.2016-09.com.openebs.cstor:" + userTargetVolume, "cstor", rig.NewIstgt},
}

// userTargetBench is a collector that follows some processes' sockets, and reads a /sys of the test's.
type userTargetBench struct {
	*operationtest.Meter
	procfs, sysfs string
	collector     collector.Collector
}

func newUserTargetBench(t *testing.T, names ...string) *userTargetBench {
	t.Helper()
	testkit.NeedBPF(t)
	return &userTargetBench{procfs: procWithout(t), sysfs: t.TempDir(), Meter: operationtest.NewMeter(t),
		collector: newUserTargetCollector(t, names)}
}

func newUserTargetCollector(t *testing.T, names []string) collector.Collector {
	t.Helper()
	c, err := NewISCSI(collector.Options{Log: slog.New(slog.NewTextHandler(collectortest.Log{T: t}, nil)), Node: "here", AttachMode: collectortest.AttachMode()}, Options{UserTargets: names})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// serve starts a real target.
func (b *userTargetBench) serve(one realTarget) *rig.ISCSIProgram {
	b.T.Helper()
	file := filepath.Join(b.T.(*testing.T).TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, userTargetDisk), 0o600); err != nil {
		b.T.Fatal(err)
	}
	p := one.start(b.T, one.target, file)
	b.show(p.Cmd.Process.Pid)
	return p
}

// show lets the collector see a process.
func (b *userTargetBench) show(pid int) {
	b.T.Helper()
	if err := os.Symlink(fmt.Sprintf("/proc/%d", pid), filepath.Join(b.procfs, strconv.Itoa(pid))); err != nil {
		b.T.Fatal(err)
	}
}

// start starts the collector, which follows a process from then on.
func (b *userTargetBench) start() {
	b.T.Helper()
	c := b.collector.(*fabricCollector)
	c.options.ProcFS, c.options.SysFS = b.procfs, b.sysfs
	c.initiator.load = c.initiator.try // this kernel need not have it
	if err := c.Start(context.Background()); err != nil {
		b.T.Fatal(err)
	}
	b.T.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.T.Errorf("close: %v", err)
		}
	})
	b.Add(c.log, "iscsi", c)
	b.Eventually("no target is followed", func(r operationtest.Reading) bool { return r.Value("plumbline_volume_target_processes", nil) == 1 })
}

func (b *userTargetBench) login(p *rig.ISCSIProgram, o initiator.Options) *initiator.Session {
	b.T.Helper()
	s, err := initiator.Login(p.Address, p.Name, o)
	if err != nil {
		b.T.Fatal(err)
	}
	limit := time.AfterFunc(testkit.DefaultTimeout, func() { _ = s.Close() }) // what hangs shall fail
	b.T.Cleanup(func() {
		limit.Stop()
		_ = s.Close()
	})
	if _, _, err := s.ReadCapacity(p.LUN); err != nil {
		b.T.Fatal(err)
	}
	return s
}

// What load does: each of its clients so often, with so many blocks.
const (
	loadClients = 4
	loadRounds  = 8
	loadSmall   = 8   // 4 KiB, which go with their command
	loadLarge   = 400 // 200 KiB, which the target fetches in several parts
)

// load writes, reads and flushes, and returns what that is by operation, in commands and in bytes.
func (b *userTargetBench) load(p *rig.ISCSIProgram, s *initiator.Session) (commands map[string]uint64, bytes map[string]float64) {
	b.T.Helper()
	var clients errgroup.Group
	for client := range loadClients {
		clients.Go(func() error {
			at := uint32(client * 2048)
			for range loadRounds {
				for _, blocks := range []int{loadSmall, loadLarge} {
					if err := s.Write(p.LUN, at, make([]byte, blocks*initiator.BlockSize)); err != nil {
						return err
					}
					if _, err := s.Read(p.LUN, at, blocks); err != nil {
						return err
					}
				}
				if err := s.Sync(p.LUN, at, loadSmall); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := clients.Wait(); err != nil {
		b.T.Fatal(err)
	}
	const n = loadClients * loadRounds
	const moved = n * (loadSmall + loadLarge) * initiator.BlockSize
	return map[string]uint64{"read": 2 * n, "write": 2 * n, "sync": n}, map[string]float64{"read": moved, "write": moved}
}

// counted waits until a volume's requests since an earlier reading are those of a load, and checks their bytes.
func (b *userTargetBench) counted(since operationtest.Reading, volume string, commands map[string]uint64, bytes map[string]float64) operationtest.Reading {
	b.T.Helper()
	labels := func(op string) operationtest.Match { return operationtest.Match{"volume": volume, "op": op} }
	r := b.Eventually("counts differ", func(r operationtest.Reading) bool {
		for op := range commands {
			if r.Count(targetPrefix+"_seconds", labels(op)) < since.Count(targetPrefix+"_seconds", labels(op))+commands[op] {
				return false
			}
		}
		return r.Value(targetPrefix+"_in_flight", nil) == 0
	})
	for op, want := range commands {
		if got := r.Count(targetPrefix+"_seconds", labels(op)) - since.Count(targetPrefix+"_seconds", labels(op)); got != want {
			b.T.Errorf("%d of %s, want %d", got, op, want)
		}
	}
	for op, want := range bytes {
		metric := targetPrefix + "_bytes_total"
		if got := r.Value(metric, labels(op)) - since.Value(metric, labels(op)); got != want {
			b.T.Errorf("%v bytes of %s, want %v", got, op, want)
		}
	}
	return r
}

// Each command to a real target in user space counts once, with its bytes, under the name in the login, with and
// without digests.
func TestISCSIUserTargetCounts(t *testing.T) {
	for _, one := range realTargets {
		t.Run(one.name, func(t *testing.T) {
			testkit.Tool(t, one.name)
			b := newUserTargetBench(t)
			p := b.serve(one)
			b.start()
			for i := range 4 {
				o := initiator.Options{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0}
				s := b.login(p, o)
				before := b.Read()
				commands, bytes := b.load(p, s)
				r := b.counted(before, userTargetVolume, commands, bytes)
				if n := r.Value(targetPrefix+"_connections", operationtest.Match{"volume": userTargetVolume, "backend": one.backend}); n != 1 {
					t.Errorf("%v sessions with %+v", n, o)
				}
				if err := s.Logout(); err != nil {
					t.Fatal(err)
				}
				after := b.Eventually("the session is still there", func(r operationtest.Reading) bool {
					return r.Value(targetPrefix+"_connections", nil) == 0
				})
				if was, is := r.Count(targetPrefix+"_seconds", nil), after.Count(targetPrefix+"_seconds", nil); is < was {
					t.Errorf("counts fell from %d to %d with the session", was, is)
				}
			}
			r := b.Read()
			r.Clean(t)
			if n := r.Value(targetPrefix+"_unanswered_total", nil) + r.Value(targetPrefix+"_errors_total", nil); n != 0 {
				t.Errorf("%v errors and unanswered", n)
			}
		})
	}
}

// For a session that is older than the agent everything counts soon, whatever its digests; the initiator, if it is this
// machine, has its name.
func TestISCSIUserTargetAdopted(t *testing.T) {
	for _, one := range realTargets {
		for i := range 4 {
			o := initiator.Options{HeaderDigest: i&1 != 0, DataDigest: i&2 != 0}
			t.Run(fmt.Sprintf("%s %v %v", one.name, o.HeaderDigest, o.DataDigest), func(t *testing.T) {
				testkit.Tool(t, one.name)
				b := newUserTargetBench(t)
				p := b.serve(one)
				s := b.login(p, o)
				local := i != 0
				volume := "other"
				if local {
					volume = userTargetVolume
					b.session(p, s)
				}
				b.start()
				b.load(p, s) // it finds out meanwhile
				b.Eventually("something is under way", func(r operationtest.Reading) bool {
					return r.Count(targetPrefix+"_seconds", operationtest.Match{"volume": volume}) > 0 && r.Value(targetPrefix+"_in_flight", nil) == 0
				})
				before := b.Read()
				commands, bytes := b.load(p, s)
				r := b.counted(before, volume, commands, bytes)
				if n := r.Value("plumbline_replica_lost_total", operationtest.Match{"reason": "path_nameless"}); (n == 0) != local {
					t.Errorf("%v LUNs without a name", n)
				}
				if n := r.Value("plumbline_replica_unmatched_total", nil); n != 0 {
					t.Errorf("%v answers without a request", n)
				}
			})
		}
	}
}

// session reports the session to the collector as the kernel's initiator would, if it were its own.
func (b *userTargetBench) session(p *rig.ISCSIProgram, s *initiator.Session) {
	bench := &iscsiBench{t: b.T.(*testing.T), sysfs: b.sysfs}
	host, port := "127.0.0.1", strconv.Itoa(s.LocalPort())
	bench.session(1, p.Name, host, "sda", "0 0")
	const folder, connection = "devices/platform/host1/session1", "connection1:0"
	bench.attribute(p.Address[len(host)+1:], folder, connection, "iscsi_connection", connection, "port")
	bench.attribute(host, folder, connection, "iscsi_connection", connection, "address")
	bench.attribute(port, folder, connection, "iscsi_connection", connection, "local_port")
	bench.attribute(host, "devices/platform/host1/iscsi_host/host1/ipaddress")
}
