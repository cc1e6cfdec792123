package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/prometheus/procfs/blockdevice"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// What is made on the disk with nothing else on it, and past the page cache: each call is one request.
const (
	writes  = 200
	reads   = 150
	flushes = 50
)

// blocks is ebpf_exporter with blockio, and the disk's statistics when it began.
type blocks struct {
	url    string
	before blockdevice.Diskstats
}

// startBlocks starts it, before anything uses the disk; nil if it does not work here.
func startBlocks(t *rig.Scope, out *outcome.Outcome) *blocks {
	logf("starting blockio")
	url, process := rig.StartBlockio(t)
	b := &blocks{url: url}
	err := testkit.Await(rig.DefaultTimeout, func() error {
		select {
		case <-process.Done:
			return nil
		default:
		}
		_, err := b.scrape()
		return err
	})
	t.Check(err)
	select {
	case <-process.Done:
		out.Blockio.Why = last(process.Log.String())
		logf("blockio does not work here: %s", out.Blockio.Why)
		return nil
	default:
	}
	out.Blockio.Works = true
	b.before = stats(t)
	return b
}

// last returns a log's last line.
func last(log string) string {
	lines := strings.Split(strings.TrimSpace(log), "\n")
	return lines[len(lines)-1]
}

func (b *blocks) scrape() (agentproc.Metrics, error) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	return agentproc.Scrape(ctx, b.url)
}

// stats reads the kernel's own statistics of the disk.
func stats(t *rig.Scope) blockdevice.Diskstats { return statsOf(t, filepath.Base(disk)) }

// statsOf reads the kernel's own statistics of a device.
func statsOf(t *rig.Scope, device string) blockdevice.Diskstats {
	f, err := blockdevice.NewDefaultFS()
	t.Check(err)
	all, err := f.ProcDiskstats()
	t.Check(err)
	for _, d := range all {
		if d.DeviceName == device {
			return d
		}
	}
	t.Fatalf("/proc/diskstats has no %s", device)
	return blockdevice.Diskstats{}
}

// counts returns what blockio counted on a device, by the kernel's name of it: reads, writes without and with flushes,
// discards.
func counts(m agentproc.Metrics, device string) (read, write, flush, discard uint64) {
	of := func(op string) uint64 {
		return uint64(m.Sum("ebpf_exporter_blkio_total_seconds", "device", device, "op", op))
	}
	return of("read"), of("write") + of("other"), of("flush"), of("discard")
}

// compare compares blockio with the kernel's statistics for all that happened, and with what is made here. Nothing else
// uses the disk.
func (b *blocks) compare(t *rig.Scope, out *outcome.Outcome) {
	if b == nil {
		return
	}
	s := stats(t)
	out.Disk = b.settled(t, filepath.Base(disk), "database", []outcome.Count{
		{What: "reads", Truth: s.ReadIOs - b.before.ReadIOs},
		// Flushes that are answered are writes there.
		{What: "writes and flushes", Truth: s.WriteIOs - b.before.WriteIOs},
		{What: "discards", Truth: s.DiscardIOs - b.before.DiscardIOs},
	}, func(read, write, flush, discard uint64) []uint64 { return []uint64{read, write + flush, discard} })

	before := stats(t)
	out.Disk = append(out.Disk, b.alone(t, disk, "alone")...)
	after := stats(t)
	if n := after.ReadIOs - before.ReadIOs; n != reads {
		t.Fatalf("the kernel counted %d reads of %d: something else uses the disk", n, reads)
	}
	if n := after.WriteIOs - before.WriteIOs; n != writes+flushes {
		t.Fatalf("the kernel counted %d writes and flushes of %d: something else uses the disk", n, writes+flushes)
	}
}

// alone uses a device that nothing else uses, and compares blockio with what is made there.
func (b *blocks) alone(t *rig.Scope, path, when string) []outcome.Count {
	device := kernelName(t, path)
	m, err := b.scrape()
	t.Check(err)
	r0, w0, f0, _ := counts(m, device)
	use(t, path)
	return b.settled(t, device, when, []outcome.Count{
		{What: "reads", Truth: reads}, {What: "writes", Truth: writes}, {What: "flushes", Truth: flushes},
	}, func(read, write, flush, _ uint64) []uint64 { return []uint64{read - r0, write - w0, flush - f0} })
}

// kernelName is the kernel's name of a device, such as dm-0, which its file need not have.
func kernelName(t *rig.Scope, path string) string {
	var s unix.Stat_t
	t.Check(unix.Stat(path, &s))
	folder, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)))
	t.Check(err)
	return filepath.Base(folder)
}

// settled compares once blockio has counted all, or long after its quarter of a second.
func (b *blocks) settled(t *rig.Scope, device, when string, truth []outcome.Count, counted func(read, write, flush, discard uint64) []uint64) []outcome.Count {
	equal := func() error {
		m, err := b.scrape()
		if err != nil {
			return err
		}
		for i, n := range counted(counts(m, device)) {
			truth[i].Counted = n
		}
		for _, c := range truth {
			if c.Counted != c.Truth {
				return os.ErrNotExist
			}
		}
		return nil
	}
	_ = testkit.Await(time.Minute, equal) // what is not equal then is reported as it is
	for i := range truth {
		truth[i].What += " (" + when + ")"
		logf("%s: %d counted of %d", truth[i].What, truth[i].Counted, truth[i].Truth)
	}
	return truth
}

// use writes, reads and flushes a device.
func use(t *rig.Scope, path string) {
	t.Check(rig.Direct(path, func(f *os.File, page []byte) error {
		for i := range writes {
			if _, err := f.WriteAt(page, int64(i)*blockSize); err != nil {
				return err
			}
		}
		for i := range reads {
			if _, err := f.ReadAt(page, int64(i)*blockSize); err != nil {
				return err
			}
		}
		for range flushes {
			if err := f.Sync(); err != nil {
				return err
			}
		}
		return nil
	}))
}
