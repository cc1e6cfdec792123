package blockio_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The bounds of histograms.h.
const (
	slots      = 40 // of a histogram, its sum not among them
	sharedCPU  = 0xffff
	dropRecord = 0
	dropEntry  = 1
)

// The node that the bounds are for.
const (
	nodeVolumes = 512
	nodeCPUs    = 128
	nodeOps     = 4
)

// recordKey and record are the program's struct key and struct record.
type recordKey struct {
	Device [nameLen]byte
	Op     uint8
	Slot   uint8
	CPU    uint16
}

type counts struct {
	Requests, Unsplit          uint64
	QueueNS, DeviceNS, TotalNS uint64
	Queue, Device, Total       [slots]uint32
}

type record struct {
	Retired, Idle  uint32
	Now, Exported  counts
	RequestsBefore uint64
}

func keyOf(device string, op uint8, cpu uint16) recordKey {
	k := recordKey{Op: op, CPU: cpu}
	copy(k.Device[:], device)
	return k
}

// startBounded loads and attaches the programs with bounds of the test's own, 0 leaves one as it is, and
// with records that take room already.
func startBounded(t *testing.T, cpuRecords, retireAfter, records uint32, taken ...recordKey) *ebpf.Collection {
	t.Helper()
	testkit.NeedBPF(t)
	spec, err := ebpf.LoadCollectionSpec("blkio.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]uint32{"max_cpu_records": cpuRecords, "retire_after": retireAfter} {
		if value == 0 {
			continue
		}
		if err := spec.Variables[name].Set(value); err != nil {
			t.Fatal(err)
		}
	}
	if records != 0 {
		spec.Maps["records"].MaxEntries = records
	}
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	// Before any device has a request that is seen.
	for _, key := range taken {
		if err := coll.Maps["records"].Put(key, record{}); err != nil {
			t.Fatal(err)
		}
	}
	attach(t, "blkio.bpf.o", coll)
	return coll
}

// exported sums what a map of counts holds of a device, its sums of nanoseconds left out.
func exported(t *testing.T, coll *ebpf.Collection, name, device string) (n uint64) {
	t.Helper()
	var key recordKey
	var value uint64
	for i := coll.Maps[name].Iterate(); i.Next(&key, &value); {
		if unix.ByteSliceToString(key.Device[:]) == device && key.Slot < slots {
			n += value
		}
	}
	return n
}

func dropped(t *testing.T, coll *ebpf.Collection, reason uint32) (n uint64) {
	t.Helper()
	var perCPU []uint64
	if err := coll.Maps["blkio_dropped_total"].Lookup(reason, &perCPU); err != nil {
		t.Fatal(err)
	}
	for _, v := range perCPU {
		n += v
	}
	return n
}

// recordsOf counts a device's records, those of single CPUs and those that CPUs share.
func recordsOf(coll *ebpf.Collection, device string) (own, shared int) {
	var key recordKey
	var value record
	for i := coll.Maps["records"].Iterate(); i.Next(&key, &value); {
		switch {
		case unix.ByteSliceToString(key.Device[:]) != device:
		case key.CPU == sharedCPU:
			shared++
		default:
			own++
		}
	}
	return own, shared
}

func awaitExported(t *testing.T, coll *ebpf.Collection, device string, want uint64) error {
	t.Helper()
	return testkit.Await(countedWithin, func() error {
		if got := exported(t, coll, "blkio_total_seconds", device); got != want {
			return fmt.Errorf("%d requests, want %d", got, want)
		}
		return nil
	})
}

// With no room for records of single CPUs every request is counted all the same, in those that the
// CPUs share; with no room for these either, each request that is not counted is counted as lost.
func TestRecordsBeyondTheBoundAreShared(t *testing.T) {
	wholly(t, func() error { return recordsBeyondTheBoundAreShared(t) })
}

func recordsBeyondTheBoundAreShared(t *testing.T) error {
	path, _ := newLoop(t, diskSize)
	device := filepath.Base(path)
	coll := startBounded(t, 1, 0, 0, keyOf("elsewhere", 0, 0))
	if err := coll.Variables["cpu_records"].Set(uint32(1)); err != nil {
		t.Fatal(err)
	}
	d := openDisk(t, path, 0)
	d.write(500)
	d.read(500)
	d.flush(20)
	if err := awaitExported(t, coll, device, 1020); err != nil {
		return err
	}
	if own, shared := recordsOf(coll, device); own != 0 || shared != 3 {
		t.Errorf("%d records of single CPUs, %d shared; want 0 and one for each of 3 operations", own, shared)
	}
	for _, name := range []string{"blkio_queue_seconds", "blkio_device_seconds"} {
		if n, unsplit := exported(t, coll, name, device), exported(t, coll, "blkio_unsplit_total", device); n+unsplit != 1020 {
			t.Errorf("%s has %d requests and %d are unsplit, want 1020 in all", name, n, unsplit)
		}
	}
	if n := dropped(t, coll, dropRecord); n != 0 {
		t.Errorf("%d requests lost", n)
	}
	d.close()
	return nil
}

func TestRequestsWithoutRoomAreCountedAsLost(t *testing.T) {
	wholly(t, func() error { return requestsWithoutRoomAreCountedAsLost(t) })
}

func requestsWithoutRoomAreCountedAsLost(t *testing.T) error {
	path, _ := newLoop(t, diskSize)
	coll := startBounded(t, 1, 0, 1, keyOf("elsewhere", 0, 0))
	d := openDisk(t, path, 0)
	d.write(100)
	d.close()
	// The machine's other devices find no room either.
	if n := dropped(t, coll, dropRecord); n < 100 {
		return fmt.Errorf("%d requests counted as lost, want the 100 of this device at least", n)
	}
	if n := exported(t, coll, "blkio_total_seconds", filepath.Base(path)); n != 0 {
		t.Errorf("%d requests were counted without room", n)
	}
	return nil
}

// A CPU's record that counts nothing any more, as of a device that is gone, is freed; what it
// counted stays, and what comes later is added to it.
func TestIdleRecordsAreFreed(t *testing.T) {
	wholly(t, func() error { return idleRecordsAreFreed(t) })
}

func idleRecordsAreFreed(t *testing.T) error {
	path, _ := newLoop(t, diskSize)
	device := filepath.Base(path)
	coll := startBounded(t, 0, 4, 0)
	d := openDisk(t, path, 0)
	for round := range uint64(3) {
		d.write(50)
		if err := awaitExported(t, coll, device, 50*(round+1)); err != nil {
			return err
		}
		// The timer does not run without a program; this device's own I/O is not needed for it.
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if own, _ := recordsOf(coll, device); own != 0 {
				return fmt.Errorf("%d records of single CPUs are left", own)
			}
			return nil
		})
	}
	d.write(1) // while a record may just be retired
	if err := awaitExported(t, coll, device, 151); err != nil {
		return err
	}
	if n := dropped(t, coll, dropRecord) + dropped(t, coll, dropEntry); n != 0 {
		t.Errorf("%d lost", n)
	}
	d.close()
	return nil
}

// The bounds hold what they are for: with the records of single CPUs used up by a node of 512
// volumes and 128 CPUs, all slots of all volumes' histograms are exported, and nothing is lost.
func TestBoundsOfALargeNode(t *testing.T) {
	wholly(t, func() error { return boundsOfALargeNode(t) })
}

func boundsOfALargeNode(t *testing.T) error {
	path, _ := newLoop(t, diskSize)
	device := filepath.Base(path)
	coll := startBounded(t, 0, 0, 0)
	var most uint32
	if err := coll.Variables["max_cpu_records"].Get(&most); err != nil {
		t.Fatal(err)
	}
	full := uint32(0)
	for volume := 0; full < most && volume < nodeVolumes; volume++ {
		for cpu := uint16(0); full < most && cpu < nodeCPUs; cpu++ {
			if err := coll.Maps["records"].Put(keyOf(fmt.Sprintf("vol%d", volume), 0, cpu), record{}); err != nil {
				t.Fatalf("record %d of %d: %v", full, most, err)
			}
			full++
		}
	}
	if full != most {
		t.Fatalf("a node of %d volumes and %d CPUs does not reach the bound of %d", nodeVolumes, nodeCPUs, most)
	}
	if err := coll.Variables["cpu_records"].Set(most); err != nil {
		t.Fatal(err)
	}
	every := counts{Requests: slots, QueueNS: 1, DeviceNS: 1, TotalNS: 1, Unsplit: 1}
	for i := range slots {
		every.Queue[i], every.Device[i], every.Total[i] = 1, 1, 1
	}
	for volume := range nodeVolumes {
		for op := range uint8(nodeOps) {
			if err := coll.Maps["records"].Put(keyOf(fmt.Sprintf("vol%d", volume), op, sharedCPU), record{Now: every}); err != nil {
				t.Fatalf("shared record of volume %d, operation %d: %v", volume, op, err)
			}
		}
	}
	d := openDisk(t, path, 0) // its requests start the timer
	d.write(200)
	if err := awaitExported(t, coll, device, 200); err != nil {
		return err
	}
	for _, name := range []string{"blkio_queue_seconds", "blkio_device_seconds", "blkio_total_seconds"} {
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			var key recordKey
			var value uint64
			n := 0
			for i := coll.Maps[name].Iterate(); i.Next(&key, &value); {
				if string(key.Device[:3]) == "vol" {
					n++
				}
			}
			if want := nodeVolumes * nodeOps * (slots + 1); n != want {
				return fmt.Errorf("%s has %d entries, want %d", name, n, want)
			}
			return nil
		})
	}
	if records, entries := dropped(t, coll, dropRecord), dropped(t, coll, dropEntry); records+entries != 0 {
		t.Errorf("%d requests and %d observations lost", records, entries)
	}
	d.close()
	return nil
}
