package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	retryReads = 20
	retryDelay = 20 * time.Millisecond
	scsiDebug  = "/sys/bus/pseudo/drivers/scsi_debug"
	// What the driver does with each command whose turn it is (drivers/scsi/scsi_debug.c): the disk answers a read
	// after its delay with "aborted"; the driver returns "busy" at once.
	scsiAborts  = 0x10
	scsiRefuses = 0x8000
	tracing     = "/sys/kernel/tracing"
)

// scsiDisk is a disk of the kernel's scsi_debug: it holds back each command for retryDelay, and fails some of them if
// configured to.
type scsiDisk struct {
	name string
	// earlier is what blockio counted of disks of that name before: a name is used again.
	earlier uint64
}

func newSCSIDisk(t *rig.Scope) *scsiDisk {
	t.Check(call("modprobe", "sd_mod"))
	t.Check(call("modprobe", "scsi_debug", "dev_size_mb=8", "ndelay="+strconv.FormatInt(retryDelay.Nanoseconds(), 10)))
	t.Cleanup(func() {
		rig.Eventually(t, rig.DefaultTimeout, func() error { return call("modprobe", "-r", "scsi_debug") })
	})
	d := &scsiDisk{}
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		folders, _ := filepath.Glob(scsiDebug + "/adapter0/host*/target*/*/block/*")
		if len(folders) != 1 {
			return fmt.Errorf("scsi_debug has the disks %q", folders)
		}
		d.name = filepath.Base(folders[0])
		_, err := os.Stat("/dev/" + d.name)
		return err
	})
	return d
}

// fail has every second command fail in this way, from now on.
func (d *scsiDisk) fail(t *rig.Scope, way int) {
	for _, s := range []struct {
		file  string
		value int
	}{{"opts", way}, {"every_nth", 2}} {
		t.Check(os.WriteFile(filepath.Join(scsiDebug, s.file), []byte(strconv.Itoa(s.value)), 0))
	}
}

// read reads the disk, and returns how long that took and how often the kernel put one of the reads back into its
// queue. It fails if something else read the disk meanwhile, or since so many reads were made: what reads a new disk
// may take a while.
func (d *scsiDisk) read(t *rig.Scope, made uint64) (took time.Duration, requeued uint64, err error) {
	event := filepath.Join(tracing, "events/block/block_rq_requeue/enable")
	t.Check(os.WriteFile(filepath.Join(tracing, "trace"), nil, 0))
	t.Check(os.WriteFile(event, []byte("1"), 0))
	t.Check(rig.Direct("/dev/"+d.name, func(f *os.File, page []byte) error {
		began := time.Now()
		for i := range retryReads {
			if _, err := f.ReadAt(page, int64(i)*blockSize); err != nil {
				return err
			}
		}
		took = time.Since(began)
		return nil
	}))
	t.Check(os.WriteFile(event, []byte("0"), 0))
	text, err := os.ReadFile(filepath.Join(tracing, "trace"))
	t.Check(err)
	if n := statsOf(t, d.name).ReadIOs - made; n != retryReads {
		err = fmt.Errorf("the kernel counted %d reads of %d: something else uses %s", n, retryReads, d.name)
	}
	return took, uint64(strings.Count(string(text), "block_rq_requeue: ")), err
}

// measureRetries compares what blockio measures of a disk that fails with the kernel's trace of requests that go back
// into the queue, and with how long the disk takes; then of a driver that refuses requests at once, which are no
// retries.
func (b *blocks) measureRetries(t *rig.Scope, out *outcome.Outcome) {
	if b == nil {
		return
	}
	if out.NoRetries = runtime.GOARCH != "amd64" && call("modprobe", "--dry-run", "scsi_debug") != nil; out.NoRetries {
		logf("no scsi_debug: no disk fails")
		return
	}
	logf("a disk that fails")
	var before agentproc.Metrics
	rig.Eventually(t, rig.DefaultTimeout, func() (err error) {
		before, err = b.scrape()
		return err
	})
	d := newSCSIDisk(t)
	d.earlier, _, _, _ = counts(before, d.name)
	d.fail(t, scsiAborts)
	var retries, atDevice float64
	var took time.Duration
	var requeued uint64
	rig.Eventually(t, rig.DefaultTimeout, func() (err error) {
		var made uint64
		retries, atDevice, made = b.retried(t, d)
		took, requeued, err = d.read(t, made)
		return err
	})
	if requeued == 0 {
		t.Fatalf("scsi_debug failed no read of %d", retryReads)
	}
	attempts := time.Duration(retryReads+requeued) * retryDelay
	count := outcome.Count{What: "retries", Truth: requeued}
	seen := outcome.Delay{What: "time of all attempts", Put: attempts.Seconds(), Truth: took.Seconds(), Waited: took.Seconds()}
	now, seconds, made := b.retried(t, d)
	count.Counted, seen.Seen = uint64(now-retries), seconds-atDevice
	logf("retries: %d counted of %d; %.0f ms at the device of %.0f", count.Counted, count.Truth, 1e3*seen.Seen, 1e3*seen.Put)
	out.Retries = outcome.Remote{Commands: []outcome.Count{count}, Delays: []outcome.Delay{seen}}

	d.fail(t, scsiRefuses)
	_, refused, err := d.read(t, made)
	t.Check(err)
	after, _, _ := b.retried(t, d)
	logf("%d refused at once, %.0f counted as retries", refused, after-now)
	// The emulator may pause for a while just then.
	if refused < retryReads/2 || after-now > float64(refused)/4 {
		t.Fatalf("of %d requests refused at once, %.0f are counted as retries", refused, after-now)
	}
	d.fail(t, 0)
}

// retried returns what blockio counted of a disk's reads, once it has all that were made: retries, and seconds at the device.
func (b *blocks) retried(t *rig.Scope, d *scsiDisk) (retries, seconds float64, made uint64) {
	var m agentproc.Metrics
	made = statsOf(t, d.name).ReadIOs
	rig.Eventually(t, rig.DefaultTimeout, func() (err error) {
		if m, err = b.scrape(); err != nil {
			return err
		}
		if read, _, _, _ := counts(m, d.name); read != d.earlier+made {
			return fmt.Errorf("%d of %d reads of %s are counted", read, d.earlier+made, d.name)
		}
		return nil
	})
	return m.Sum("ebpf_exporter_blkio_retries_total", "device", d.name, "op", "read"),
		m.Seconds("ebpf_exporter_blkio_device_seconds", "device", d.name, "op", "read"), made
}
