package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/exporters/agent/remote"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What does not need a kernel with iSCSI: the test writes into the kernel's maps what the programs would, and makes a
// /sys. The programs themselves are proved by tests/kernels.

// iscsiBench is a collector with its programs loaded, not attached.
type iscsiBench struct {
	t         *testing.T
	sysfs     string
	collector *fabricCollector
	meter     *operationtest.Meter
	// ahead is by how much the collector's clock is ahead of the kernel's.
	ahead time.Duration
}

func newISCSIBench(t *testing.T) *iscsiBench {
	t.Helper()
	testkit.NeedBPF(t)
	b := &iscsiBench{t: t, sysfs: t.TempDir(), meter: operationtest.NewMeter(t)}
	log := slog.New(slog.NewTextHandler(collectortest.Log{T: t}, nil))
	c, err := NewISCSI(collector.Options{Log: log, Node: "here", SysFS: b.sysfs, ProcFS: procWithout(t)}, Options{Names: []string{`lab=iqn\.x:(?P<volume>.+)-r-(?P<replica>\d+)`}})
	if err != nil {
		t.Fatal(err)
	}
	b.collector = c.(*fabricCollector)
	b.collector.clock = func() uint64 { return collector.Monotonic() + uint64(b.ahead) }
	for _, side := range []*fabricSide{b.collector.initiator, b.collector.target} {
		if side.kernel, err = side.try(); err != nil {
			t.Fatal(err)
		}
		side.needed, side.unnamed, side.doubted = time.Now(), map[uint32]time.Time{}, map[uint64]uint64{}
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	b.meter.Add(log, "iscsi", c)
	return b
}

func (b *iscsiBench) read() operationtest.Reading {
	b.t.Helper()
	return b.meter.Read()
}

// attribute writes a file below /sys.
func (b *iscsiBench) attribute(value string, path ...string) {
	b.t.Helper()
	file := filepath.Join(append([]string{b.sysfs}, path...)...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(value+"\n"), 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *iscsiBench) link(to string, path ...string) {
	b.t.Helper()
	file := filepath.Join(append([]string{b.sysfs}, path...)...)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.Symlink(to, file); err != nil {
		b.t.Fatal(err)
	}
}

// session makes one with a disk.
func (b *iscsiBench) session(number int, iqn, host, disk, inFlight string) {
	name := fmt.Sprintf("session%d", number)
	folder := fmt.Sprintf("devices/platform/host%d/%s", number, name)
	connection := fmt.Sprintf("connection%d:0", number)
	device := fmt.Sprintf("%s/target%d:0:0/%d:0:0:0", folder, number, number)
	b.attribute("", "class/iscsi_session", name, "state")
	b.attribute(iqn, folder, "iscsi_session", name, "targetname")
	b.attribute("LOGGED_IN", folder, "iscsi_session", name, "state")
	b.attribute(host, folder, connection, "iscsi_connection", connection, "persistent_address")
	b.attribute("3260", folder, connection, "iscsi_connection", connection, "persistent_port")
	b.attribute("running", device, "state")
	b.attribute(inFlight, device, "block", disk, "inflight")
	b.attribute("1", device, "block", disk, "queue/iostats")
	b.attribute(fmt.Sprint(sequenceOf(number)), device, "block", disk, "diskseq")
	b.link("../"+device+"/block/"+disk, "block", disk)
}

// local makes a disk of the machine's own.
func (b *iscsiBench) local(number int, disk string) {
	device := fmt.Sprintf("devices/pci0000:00/ata%d/host%d/target%d:0:0/%d:0:0:0/block/%s", number, number, number, number, disk)
	b.attribute(fmt.Sprint(sequenceOf(number)), device, "diskseq")
	b.link("../"+device, "block", disk)
}

// sequenceOf is the kernel's own number of the disk that is the number-th of a test.
func sequenceOf(number int) uint64 { return 100 + uint64(number) }

func (b *iscsiBench) put(side *fabricSide, name string, key, value any) {
	b.t.Helper()
	if err := side.kernel.collection.Maps[name].Put(key, value); err != nil {
		b.t.Fatalf("map %s: %v", name, err)
	}
}

// disk does as the programs do with a disk's first command; ended are commands of one kind that have ended.
func (b *iscsiBench) disk(number uint32, ended uint64) {
	b.put(b.collector.initiator, "disks", sequenceOf(int(number)), number)
	b.put(b.collector.initiator, "latencies", bpf.LatencyKey{Number: number, Op: 1}, latencyOf(ended))
}

func latencyOf(n uint64) operation.Latency {
	l := operation.Latency{SumNs: n * 1e6, Bytes: n * 4096}
	l.Slots[0] = n
	return l
}

func put(to []int8, text string) {
	for i := range text {
		to[i] = int8(text[i])
	}
}

const pathMetric = "plumbline_volume_path_seconds"

// An initiator's sessions: names, the machine's own disks, what is under way, what was given up, and the end of a
// session.
func TestISCSIInitiator(t *testing.T) {
	b := newISCSIBench(t)
	b.session(1, "iqn.x:db-r-1", "10.0.0.1", "sda", "0 1")
	b.session(2, "iqn.x:db", "10.0.0.2", "sdb", "0 0")
	b.local(3, "sdc")
	b.disk(1, 10)
	b.disk(2, 20)
	b.disk(3, 40)
	initiator := b.collector.initiator
	now := collector.Monotonic()
	b.put(initiator, "operations", uint64(0x100), bpf.Operation{Start: now - 5e9, Number: 1, Op: 1})
	b.put(initiator, "operations", uint64(0x200), bpf.Operation{Start: now - 5e9, Number: 2, Op: 1})             // its end went by unseen
	b.put(initiator, "operations", uint64(0x300), bpf.Operation{Start: now - 5e9, Number: 2, Op: 0, GivenUp: 1}) // aborted
	b.put(initiator, "operations", uint64(0x400), bpf.Operation{Start: now - 5e9, Number: bpf.Ignored, Op: 5})   // was for no disk
	b.put(initiator, "unanswered", uint32(1), uint64(3))
	b.collector.scan()

	one, two := operationtest.Match{"volume": "db", "address": "10.0.0.1:3260", "backend": "lab"}, operationtest.Match{"volume": "iqn.x:db", "path": "10.0.0.2:3260", "backend": "iscsi"}
	r := b.read()
	for what, got := range map[string][2]float64{
		"replica's requests":    {float64(r.Count(operationtest.RequestMetric, one)), 10},
		"volume's commands":     {float64(r.Count(pathMetric, two)), 20},
		"commands in all":       {float64(r.Count(operationtest.RequestMetric, nil) + r.Count(pathMetric, nil)), 30},
		"in flight":             {r.Value("plumbline_replica_requests_in_flight", one), 1},
		"unanswered":            {r.Value("plumbline_replica_request_unanswered_total", one), 3},
		"paths":                 {r.Value("plumbline_volume_path_state", operationtest.Match{"state": "logged_in"}), 2},
		"connections":           {r.Value("plumbline_replica_request_connections", one), 1},
		"the replica's own row": {r.Value("plumbline_volume_path_info", operationtest.Match{"device": "sda", "controller": "session1", "subsystem": "iqn.x:db-r-1"}), 1},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %v, want %v", what, got[0], got[1])
		}
	}
	if age := r.Value("plumbline_replica_oldest_request_seconds", one); age < 5 || age > 300 {
		t.Errorf("the oldest request is %v s old", age)
	}

	b.collector.scan() // the kernel counts none under way at sdb, twice
	r = b.read()
	if lost, given := r.Value("plumbline_replica_lost_total", operationtest.Match{"wire": "iscsi-initiator"}), r.Value("plumbline_volume_path_unanswered_total", two); lost != 1 || given != 1 {
		t.Errorf("%v lost and %v unanswered, want 1 and 1", lost, given)
	}

	// A session goes, with a command under way.
	for _, path := range []string{"block/sda", "class/iscsi_session/session1", "devices/platform/host1"} {
		if err := os.RemoveAll(filepath.Join(b.sysfs, path)); err != nil {
			t.Fatal(err)
		}
	}
	// Its answer may yet come: the disk goes from sysfs before its last command ends.
	for _, step := range []struct {
		ahead                time.Duration
		inFlight, unanswered float64
	}{{0, 1, 3}, {80 * time.Second, 1, 3}, {100 * time.Second, 0, 4}} {
		b.ahead = step.ahead
		b.collector.scan()
		r = b.read()
		under, gone := r.Value("plumbline_replica_requests_in_flight", one), r.Value("plumbline_replica_request_unanswered_total", one)
		if n := r.Count(operationtest.RequestMetric, one); n != 10 || under != step.inFlight || gone != step.unanswered {
			t.Errorf("%v after a session went: %d requests, %v under way and %v unanswered, want 10, %v and %v", step.ahead, n, under, gone, step.inFlight, step.unanswered)
		}
	}
	if lost := r.Value("plumbline_replica_lost_total", nil); lost != 1 {
		t.Errorf("%v lost, want 1", lost)
	}
	if left, err := initiator.operations(); err != nil || len(left) != 0 {
		t.Errorf("%v, %v: operations that have no end are kept", left, err)
	}

	// The other one goes, too, and its disk's name is at once that of one of the machine's own.
	if err := os.RemoveAll(filepath.Join(b.sysfs, "block/sdb")); err != nil {
		t.Fatal(err)
	}
	b.local(5, "sdb")
	b.disk(5, 80)
	b.collector.scan()
	if n := b.read().Count(pathMetric, two); n != 20 {
		t.Errorf("%d commands of a path whose disk's name is another one's, want 20", n)
	}
}

// A disk's name, and its memory, are another one's at once: nothing of the new path is counted as the old one's, also
// at the first scan.
func TestISCSINameUsedAgain(t *testing.T) {
	b := newISCSIBench(t)
	b.session(1, "iqn.x:old", "10.0.0.1", "sda", "0 0")
	b.disk(1, 10)
	b.collector.scan()
	if err := errors.Join(os.RemoveAll(filepath.Join(b.sysfs, "block/sda")), os.RemoveAll(filepath.Join(b.sysfs, "devices/platform/host1"))); err != nil {
		t.Fatal(err)
	}
	b.session(2, "iqn.x:new", "10.0.0.2", "sda", "0 0")
	b.disk(2, 3)
	for range 3 {
		b.collector.scan()
		b.put(b.collector.initiator, "latencies", bpf.LatencyKey{Number: 2, Op: 1}, latencyOf(7))
		r := b.read()
		if old, fresh := r.Count(pathMetric, operationtest.Match{"volume": "iqn.x:old"}), r.Count(pathMetric, operationtest.Match{"volume": "iqn.x:new"}); old != 10 || fresh != 7 {
			t.Fatalf("%d commands of the path that is gone, and %d of the new one, want 10 and 7", old, fresh)
		}
	}
}

// What a target serves: names by the address it was queried at, what it is made of, and a command that its initiator
// has aborted.
func TestISCSITarget(t *testing.T) {
	const core, lun = "kernel/config/target/core/iblock_0/one", "kernel/config/target/iscsi/iqn.x:db-r-2/tpgt_1/lun/lun_5"
	b := newISCSIBench(t)
	b.attribute("", "module/iscsi_target_mod/version")
	b.attribute("/dev/sdz", core, "udev_path")
	b.link("../../../../../core/iblock_0/one", lun, "0a1b2c")
	b.attribute("0 1", "class/block/sdz/inflight")
	b.attribute("1", "class/block/sdz/queue/iostats")
	target := b.collector.target
	e := bpf.Export{Number: 7, Inner: 5}
	put(e.Nqn[:], "iqn.x:db-r-2")
	put(e.Service[:], "tpgt_1")
	put(e.Address[:], "\x02\x00\x0c\xbc\x0a\x00\x00\x02")
	b.put(target, "exports", bpf.ExportKey{Subsystem: 1, Serial: 2, Port: 3}, e)
	b.put(target, "latencies", bpf.LatencyKey{Number: 7}, latencyOf(11))
	now := collector.Monotonic()
	b.put(target, "controllers", uint64(0x900), bpf.Controller{Seen: now, Subsystem: 1})
	b.put(target, "operations", uint64(0x100), bpf.Operation{Start: now, Controller: 0x900, Number: 7, GivenUp: 1})
	b.collector.scan()
	b.collector.scan() // now it is known what the LUN is made of

	one := operationtest.Match{"volume": "db", "address": "10.0.0.2:3260", "backend": "lab"}
	r := b.read()
	if n, under := r.Count(operationtest.ServiceMetric, one), r.Value("plumbline_replica_services_in_flight", one); n != 11 || under != 1 {
		t.Errorf("%d requests served, and %v under way, want 11 and 1", n, under)
	}
	if n := r.Value("plumbline_replica_info", operationtest.Match{"volume": "db", "address": "10.0.0.2:3260", "device": "sdz", "directory": "/dev/sdz"}); n != 1 {
		t.Errorf("the replica is reported %v times: %v", n, r["plumbline_replica_info"])
	}

	// The disk hangs: the command is under way as long as it takes.
	b.ahead = 2 * keepAliveTimeout
	underWay := func() float64 {
		for range 3 {
			b.collector.scan()
		}
		return b.read().Value("plumbline_replica_services_in_flight", one)
	}
	if n := underWay(); n != 1 {
		t.Fatalf("%v under way while the disk hangs", n)
	}
	// The disk has nothing to do any more, and no end was reported: it was aborted.
	b.attribute("0 0", "class/block/sdz/inflight")
	if n := underWay(); n != 0 {
		t.Fatalf("%v under way though the disk is idle", n)
	}
	r = b.read()
	if gone, lost := r.Value("plumbline_replica_service_unanswered_total", one), r.Value("plumbline_replica_lost_total", nil); gone != 1 || lost != 0 {
		t.Errorf("%v unanswered and %v lost, want 1 and 0", gone, lost)
	}
}

// procWithout is a /proc that has no process but the first.
func procWithout(t *testing.T) string {
	t.Helper()
	procfs := t.TempDir()
	for file, to := range map[string]string{"self": "/proc/self", "1": "/proc/1"} {
		if err := os.Symlink(to, filepath.Join(procfs, file)); err != nil {
			t.Fatal(err)
		}
	}
	return procfs
}

// A kernel without iSCSI: --check reports so, and that the programs would load.
func TestISCSICheck(t *testing.T) {
	testkit.NeedBPF(t)
	c, err := NewISCSI(collector.Options{Log: slog.New(slog.DiscardHandler), Node: "here", SysFS: t.TempDir(), ProcFS: procWithout(t)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c.(*fabricCollector).scan()
	results := c.Check()
	wants := []string{"0 over a network", "has not loaded the module scsi_transport_iscsi; its verifier takes", "has not loaded the module iscsi_target_mod; its verifier takes",
		"no process of root's named tgtd, istgt, gotgt, jiva; its verifier takes"}
	if len(results) != len(wants) {
		t.Fatalf("%d results", len(results))
	}
	for i, want := range wants {
		if r := results[i]; r.Err != nil || !strings.Contains(r.Note, want) {
			t.Errorf("%s: %v, %q, want %q", r.Part, r.Err, r.Note, want)
		}
	}
	if _, err := NewISCSI(collector.Options{Log: slog.New(slog.DiscardHandler)}, Options{Names: []string{"x"}}); err == nil || !strings.Contains(err.Error(), "--iscsi.name") {
		t.Errorf("a rule that is none: %v", err)
	}
}

// A machine whose modules lack what the programs read reports so, and is retried later.
func TestISCSIRefused(t *testing.T) {
	testkit.NeedBPF(t)
	sysfs := t.TempDir()
	wire := iscsiWire
	wire.initiator = []fabricProgram{{bpf.IscsiProgIscsiRequestEnds, "plumbline_no_such_tracepoint"}}
	if err := os.MkdirAll(filepath.Join(sysfs, "class/iscsi_session/session1"), 0o755); err != nil {
		t.Fatal(err)
	}
	c := newFabric(collector.Options{Log: slog.New(slog.DiscardHandler), SysFS: sysfs}, wire, remote.Names{})
	c.scan()
	if err := c.initiator.err; err == nil || c.initiator.kernel != nil {
		t.Fatal("programs are attached to tracepoints that are not there")
	}
	if _, err := c.collect(); err == nil {
		t.Error("a scrape does not report that iSCSI is not measured")
	}
	if r := c.Check()[1]; r.Err == nil || !strings.Contains(r.Note, "iSCSI is not measured at this end") {
		t.Errorf("--check reports %v, %q", r.Err, r.Note)
	}
}
