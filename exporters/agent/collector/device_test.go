package collector

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs/blockdevice"
)

func deviceNow(name string, inFlight, completed uint64) []blockdevice.Diskstats {
	return []blockdevice.Diskstats{{
		Info:    blockdevice.Info{DeviceName: name},
		IOStats: blockdevice.IOStats{WriteIOs: completed, IOsInProgress: inFlight},
	}}
}

// deviceValues returns what is exported of one device.
func deviceValues(t *testing.T, d *devices, name string) (inFlight, stalled float64, there bool) {
	t.Helper()
	for _, f := range gather(t, d) {
		for _, m := range f.Metric {
			if labels(m)["device"] != name {
				continue
			}
			there = true
			switch f.GetName() {
			case "plumbline_device_in_flight":
				inFlight = m.Gauge.GetValue()
			case "plumbline_device_stalled_seconds":
				stalled = m.Gauge.GetValue()
			}
		}
	}
	return inFlight, stalled, there
}

// A device stalls from the look that first sees its requests without a completion; any
// completion, and an empty queue, ends that.
func TestDeviceStalled(t *testing.T) {
	c, err := NewDevice(Options{Node: "here"})
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
		d.update(deviceNow("sda", step.inFlight, step.completed), nil, begin)
		inFlight, stalled, _ := deviceValues(t, d, "sda")
		if inFlight != float64(step.inFlight) || (stalled > 59) != step.stalled {
			t.Errorf("%s: %v in flight, stalled for %v s", step.what, inFlight, stalled)
		}
	}
	// A completion between two looks begins the wait anew.
	d.update(deviceNow("sda", 1, 14), nil, begin)
	d.update(deviceNow("sda", 1, 15), nil, time.Now())
	if _, stalled, _ := deviceValues(t, d, "sda"); stalled != 0 {
		t.Errorf("it completed a request just now and stalls for %v s", stalled)
	}
	// What is gone has no series; what was never used neither.
	d.update(deviceNow("loop7", 0, 0), nil, time.Now())
	for _, name := range []string{"sda", "loop7"} {
		if _, _, there := deviceValues(t, d, name); there {
			t.Errorf("%s has series", name)
		}
	}
	// Without counts the collector fails and says so.
	d.update(nil, errors.New("no diskstats"), time.Now())
	if err := d.Update(make(chan prometheus.Metric, 10)); err == nil {
		t.Error("no error without counts")
	}
}
