package disk

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	diskname "github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

func deviceNow(name string, inFlight, completed uint64) []deviceCounts {
	return []deviceCounts{{name: name, inFlight: inFlight, completed: completed}}
}

// A device stalls from the sample that first sees its requests without a completion; any
// completion, and an empty queue, ends that.
func TestDeviceStalled(t *testing.T) {
	c, err := NewDevice(collector.Options{Node: "here"})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*devices)
	begin := time.Now().Add(-time.Minute)
	for _, step := range []struct {
		what                string
		inFlight, completed uint64
		stalled             bool
	}{
		{"idle", 0, 10, false},
		{"idle still", 0, 10, false},
		{"a first request", 1, 10, true}, // for the minute since, as nothing else is known
		{"still the same", 3, 10, true},
		{"one is completed", 2, 11, true},
		{"empty", 0, 13, false},
	} {
		for _, at := range []time.Time{begin, time.Now()} {
			d.update(deviceNow("sda", step.inFlight, step.completed), 0, nil, at)
		}
		inFlight, stalled, _ := collectortest.DeviceValues(t, d, "sda")
		if inFlight != float64(step.inFlight) || (stalled > 59) != step.stalled {
			t.Errorf("%s: %v in flight, stalled for %v s", step.what, inFlight, stalled)
		}
	}
	// A completion between two samples begins the wait anew.
	d.update(deviceNow("sda", 1, 14), 0, nil, begin)
	d.update(deviceNow("sda", 1, 15), 0, nil, time.Now())
	if _, stalled, _ := collectortest.DeviceValues(t, d, "sda"); stalled != 0 {
		t.Errorf("it completed a request just now and stalls for %v s", stalled)
	}
	// Time without samples is none in which nothing is completed.
	d.update(deviceNow("sda", 1, 16), 0, nil, begin)
	d.update(deviceNow("sda", 1, 16), 0, nil, begin.Add(deviceInterval))
	if _, stalled, _ := collectortest.DeviceValues(t, d, "sda"); stalled != 0 {
		t.Errorf("its last sample is of one second after a completion, and it stalls for %v s", stalled)
	}
	// What is gone has no series; what was never used neither.
	d.update(deviceNow("loop7", 0, 0), 0, nil, time.Now())
	for _, name := range []string{"sda", "loop7"} {
		if _, _, there := collectortest.DeviceValues(t, d, name); there {
			t.Errorf("%s has series", name)
		}
	}
	// Without counts the collector fails and reports so.
	d.update(deviceNow("sda", 1, 16), 0, nil, begin)
	d.update(nil, 0, errors.New("no diskstats"), time.Now())
	ch := make(chan prometheus.Metric, 10)
	if err := d.Update(ch); err == nil || len(ch) > 0 {
		t.Errorf("without counts %d series and the error %v", len(ch), err)
	}
}

// Requests of a device that none of its members has and for which nobody waits are a wrong count: no stall, also after others
// were completed. With a member's requests, or a process that waits, they are a stall.
func TestDeviceLeaks(t *testing.T) {
	const wrong, stall = true, false
	for _, c := range []struct {
		name, blocked  string
		below          uint64 // requests of the member's
		device, member string
		made           []string
		is             bool
	}{
		{"an idle md", "procs_blocked 0", 0, "md0", "sda", []string{"md0/slaves/sda"}, wrong},
		{"an idle partition", "procs_blocked 0", 0, "cciss/c0d0p1", "cciss/c0d0", []string{"cciss!c0d0/cciss!c0d0p1/partition"}, wrong},
		{"requests below", "procs_blocked 0", 1, "md0", "sda", []string{"md0/slaves/sda"}, stall},
		{"somebody waits", "procs_blocked 1", 0, "md0", "sda", []string{"md0/slaves/sda"}, stall},
		{"unknown who waits", "", 0, "md0", "sda", []string{"md0/slaves/sda"}, stall},
		{"a disk", "procs_blocked 0", 0, "sdb", "sda", []string{"sdb/slaves"}, stall},
	} {
		t.Run(c.name, func(t *testing.T) {
			proc, sys := t.TempDir(), t.TempDir()
			if err := errors.Join(os.WriteFile(filepath.Join(proc, "stat"), []byte("cpu 1 2\nintr 9 9\n"+c.blocked+"\n"), 0o644), os.MkdirAll(filepath.Join(sys, "class/block"), 0o755)); err != nil {
				t.Fatal(err)
			}
			for _, path := range c.made {
				device := filepath.Join("devices", path)
				for filepath.Base(device) != diskname.Entry(c.device) {
					device = filepath.Dir(device)
				}
				if err := errors.Join(os.MkdirAll(filepath.Join(sys, "devices", path), 0o755), os.Symlink(filepath.Join("../..", device), filepath.Join(sys, "class/block", diskname.Entry(c.device)))); err != nil {
					t.Fatal(err)
				}
			}
			made, err := NewDevice(collector.Options{Node: "here", ProcFS: proc, SysFS: sys, Log: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			d := made.(*devices)
			at := time.Now().Add(-10 * leakSamples * time.Second)
			samples := func(n int, inFlight, completed uint64) {
				for range n {
					at = at.Add(time.Second)
					d.update([]deviceCounts{{name: c.device, inFlight: inFlight, completed: completed}, {name: c.member, inFlight: c.below, completed: 50}}, 0, nil, at)
				}
			}
			stalls := func(when string, want bool) {
				t.Helper()
				inFlight, stalled, _ := collectortest.DeviceValues(t, d, c.device)
				if (stalled > 0) != want || inFlight == 0 {
					t.Errorf("%s: stalled for %v s with %v in flight", when, stalled, inFlight)
				}
			}
			const busy = 3 // samples before it counts as stalled
			samples(busy+leakSamples/2, 346, 99)
			samples(busy+leakSamples/2-1, 345, 100)
			stalls("at first", true)
			samples(2, 345, 100)
			stalls("later", c.is == stall)
			samples(1+busy, 345, 107)
			stalls("after other requests", c.is == stall)
			samples(1+busy, 346, 107)
			stalls("with one more request", true)
			want := 0.0
			if c.is == wrong {
				want = 1
			}
			if n := collectortest.UnidentifiedValue(t, d, collector.KindBlockDevice, collector.ReasonInFlight); n != want {
				t.Errorf("%v devices are counted, want %v", n, want)
			}
			samples(1, 0, 500)
			samples(1+busy, 345, 500)
			stalls("as many anew", true)
		})
	}
}

// A line of diskstats that is not understood is counted, and costs no other device its series. Lines are as kernels
// from 2.6 to 5.5 on have them.
func TestDiskstatsLines(t *testing.T) {
	proc := t.TempDir()
	text := `   8       0 sda 10 0 80 5 20 0 160 9 3 12 14
   8      16 sdb 1 0 8 1 2 0 16 1 0 1 1 4 0 8 1
 259       0 nvme0n1 100 0 800 50 200 0 1600 90 1 120 140 5 0 40 2 7 3
 253       0 cciss/c0d0 1 x 8 1 many 0 16 1 0 1 1
   8       1 sda1 5 40 6 48
`
	if err := os.WriteFile(filepath.Join(proc, "diskstats"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := NewDevice(collector.Options{Node: "here", ProcFS: proc})
	if err != nil {
		t.Fatal(err)
	}
	d := c.(*devices)
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	got, unread, err := diskstats(proc)
	if want := []deviceCounts{{"sda", 3, 30, 30, 240 * 512}, {"sdb", 0, 7, 7, 32 * 512}, {"nvme0n1", 1, 312, 305, 2440 * 512}}; err != nil || unread != 2 || !slices.Equal(got, want) {
		t.Errorf("%v, %d lines not understood, %v; want %v and 2", got, unread, err, want)
	}
	if inFlight, _, there := collectortest.DeviceValues(t, d, "sda"); !there || inFlight != 3 {
		t.Errorf("sda has %v requests in flight, known: %t", inFlight, there)
	}
	if n := collectortest.UnidentifiedValue(t, d, collector.KindLine, collector.ReasonDiskstats); n != 2 {
		t.Errorf("%v lines are counted, want 2", n)
	}
}

// The paths to an NVMe namespace count as the namespace: they alone do before Linux 6.2, later both.
func TestPathsOfNVMe(t *testing.T) {
	proc := t.TempDir()
	text := `   0       0 nvme0c0n1 34706049 74843 4815165730 93876201 4187610 1925219 6989322264 47813633 3 45557635 118897696
   0       0 nvme0c1n1 1 0 8 1 2 0 16 1 1 1 1
 259       1 nvme0n1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
   0       0 nvme1c1n2 70 0 560 1 30 0 240 1 2 1 1
 259       2 nvme1n2 60 0 480 1 30 0 240 1 1 1 1
   0       0 nvme2c0n1 5 0 40 1 0 0 0 1 0 1 1
`
	if err := os.WriteFile(filepath.Join(proc, "diskstats"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got, unread, err := diskstats(proc)
	want := []deviceCounts{{"nvme0n1", 4, 38893662, 38893662, (4815165730 + 6989322264 + 24) * 512}, {"nvme1n2", 1, 90, 90, 720 * 512}}
	if err != nil || unread != 0 || !slices.Equal(got, want) {
		t.Errorf("%v, %d lines not understood, %v; want %v", got, unread, err, want)
	}
}
