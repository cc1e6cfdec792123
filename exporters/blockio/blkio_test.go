package blockio_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

const diskSize = 64 << 20

// Every request is counted once, under its operation, and the kernel's own statistics agree.
func TestRequests(t *testing.T) {
	wholly(t, func() error { return countRequests(t) })
}

// countedWithin is how long to wait for requests that may have gone unseen, before they are counted again.
const countedWithin = time.Minute

// wholly counts again, some times, if count misses requests: some go unseen while another tracer on
// the machine comes or goes, see blkio.bpf.c.
func wholly(t *testing.T, count func() error) {
	t.Helper()
	const attempts = 4
	for n := 1; ; n++ {
		err := count()
		if err == nil {
			return
		}
		if n == attempts {
			t.Fatal(err)
		}
		t.Logf("attempt %d of %d: %v", n, attempts, err)
	}
}

// countRequests fails the test for what is wrong at any rate, and returns an error if the
// number of requests is, or a time that a pause of the machine changes.
func countRequests(t *testing.T) error {
	e := startExporter(t)
	path, _ := newLoop(t, diskSize)
	device := filepath.Base(path)
	before := readDiskstats(t, device)

	d := openDisk(t, path, 0)
	d.write(3000)
	d.read(2000)
	d.flush(200)
	d.discard(100)
	// The loop driver knows no FUA: the block layer makes each of these a write followed by a flush of its own, and the
	// kernel adds the fsync of O_DSYNC.
	openDisk(t, path, unix.O_DSYNC).write(300)

	values, err := e.reached(t, device, map[string]uint64{"write": 3300, "read": 2000, "flush": 500, "discard": 100}, countedWithin)
	if err != nil {
		return err
	}
	checkSplit(t, values)
	for s, v := range values {
		checkBuckets(t, s, v)
	}

	after := readDiskstats(t, device)
	return errors.Join(checkAgreement(t, "read", after.reads-before.reads, after.readMS-before.readMS, values, "read"),
		// There, a flush is a write: the fsync's request is a write of nothing.
		checkAgreement(t, "write", after.writes-before.writes, after.writeMS-before.writeMS, values, "write", "flush"),
		checkAgreement(t, "discard", after.discards-before.discards, after.discardMS-before.discardMS, values, "discard"))
}

// checkAgreement compares the totals of some operations with the kernel's count and time. It returns an error for the
// time: a machine that pauses between the kernel's end of one request and ours spoils it.
func checkAgreement(t *testing.T, what string, count, ms uint64, values map[series]value, ops ...string) error {
	t.Helper()
	var ours value
	for _, op := range ops {
		v := values[series{"total", op}]
		ours.count += v.count
		ours.ns += v.ns
	}
	if ours.count != count {
		t.Errorf("%s: %d requests, the kernel counted %d", what, ours.count, count)
	}
	// The kernel rounds down to a millisecond. It takes its time just before ours; before 6.5 it takes it later than
	// ours, after it has woken the task that waited for the request.
	early, late := 0.003, 0.003 // ms a request
	if !rig.HasIODone(t) {
		early = 0.025
	}
	kernel, mine := float64(ms), float64(ours.ns)/1e6
	if mine > kernel+1+late*float64(count) || mine < kernel-1-early*float64(count) {
		return fmt.Errorf("%s: %.1f ms, the kernel counted %d ms", what, mine, ms)
	}
	t.Logf("%s: %d requests, %.1f ms; the kernel: %d requests, %d ms", what, ours.count, mine, count, ms)
	return nil
}

// checkBuckets checks that the sum is possible for what the buckets hold.
func checkBuckets(t *testing.T, s series, v value) {
	t.Helper()
	var low, high, below, bound float64
	for _, b := range v.buckets {
		n := float64(b.GetCumulativeCount())
		low += (n - below) * bound
		if n > below {
			high += (n - below) * b.GetUpperBound()
		}
		below, bound = n, b.GetUpperBound()
	}
	if sum := float64(v.ns) / 1e9; len(v.buckets) > 0 && (sum < low || sum > high) {
		t.Errorf("%v: sum %v s, but the buckets allow %v to %v", s, sum, low, high)
	}
}

// A device that is detached and attached again keeps its name, even without a lookup in between.
func TestDetachedAndReused(t *testing.T) {
	e := startExporter(t)
	path, detach := newLoop(t, diskSize)
	device := filepath.Base(path)
	d := openDisk(t, path, 0)
	d.write(10)
	d.close()
	detach()
	e.expect(t, device, map[string]uint64{"write": 10})

	file := filepath.Join(diskTempDir(t), "disk")
	if err := os.WriteFile(file, make([]byte, diskSize), 0o600); err != nil {
		t.Fatal(err)
	}
	losetup := testkit.Tool(t, "losetup")
	if out, err := exec.Command(losetup, "--direct-io=on", path, file).CombinedOutput(); err != nil {
		testkit.Skip(t, "another program took "+path+" meanwhile: "+string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command(losetup, "--detach", path).CombinedOutput(); err != nil {
			t.Errorf("detaching %s: %v: %s", path, err, out)
		}
	})
	d = openDisk(t, path, 0)
	d.write(7)
	checkSplit(t, e.expect(t, device, map[string]uint64{"write": 17}))
	d.close()
}

// Without I/O statistics the kernel's stamps mean nothing, so nothing may be counted.
func TestWithoutIOStats(t *testing.T) {
	e := startExporter(t)
	path, _ := newLoop(t, diskSize)
	device := filepath.Base(path)
	d := openDisk(t, path, 0)
	iostats := sysfs(t, device, "queue/iostats")
	t.Cleanup(func() { setSysfs(t, device, "queue/iostats", iostats) })
	setSysfs(t, device, "queue/iostats", 0)
	d.write(50)
	d.flush(10)
	setSysfs(t, device, "queue/iostats", 1)
	d.write(20)
	d.flush(3)
	checkSplit(t, e.expect(t, device, map[string]uint64{"write": 20, "flush": 3}))
}

// A device without requests is measured by its bios.
func TestBioBased(t *testing.T) {
	e := startExporter(t)
	device := newZram(t)
	d := openDisk(t, filepath.Join("/dev", device), 0)
	d.write(300)
	d.read(200)
	d.discard(20)
	values := e.expect(t, device, map[string]uint64{"write": 300, "read": 200, "discard": 20})
	checkSplit(t, values)
	for s, v := range values {
		if s.histogram == "queue" && v.ns != 0 {
			t.Errorf("%s: %d ns in a queue that does not exist", s.op, v.ns)
		}
	}
	d.close()
}

// newZram makes a compressed RAM disk and returns its name.
func newZram(t *testing.T) string {
	t.Helper()
	const control = "/sys/class/zram-control"
	id, err := os.ReadFile(control + "/hot_add")
	if err != nil {
		testkit.Skip(t, "needs zram: "+err.Error())
	}
	number := strings.TrimSpace(string(id))
	device := "zram" + number
	t.Cleanup(func() {
		setSysfs(t, device, "reset", 1)
		if err := os.WriteFile(control+"/hot_remove", []byte(number), 0); err != nil {
			t.Error(err)
		}
	})
	setSysfs(t, device, "disksize", diskSize)
	return device
}
