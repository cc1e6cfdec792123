// Package collectortest is what the tests of several collectors need: collectors of this machine, what they export, and
// the machine's devices and file systems.
package collectortest

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// DeviceValues returns what is exported of one device.
func DeviceValues(t *testing.T, c collector.Collector, name string) (inFlight, stalled float64, there bool) {
	t.Helper()
	for _, f := range Gather(t, c) {
		for _, m := range f.Metric {
			if Labels(m)["device"] != name {
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

// UnidentifiedValue is what a collector exports of what it could not identify.
func UnidentifiedValue(t *testing.T, c collector.Collector, kind, reason string) float64 {
	t.Helper()
	for _, f := range Gather(t, c) {
		for _, m := range f.Metric {
			if l := Labels(m); f.GetName() == "plumbline_unidentified_objects" && l["kind"] == kind && l["reason"] == reason {
				return m.Gauge.GetValue()
			}
		}
	}
	t.Errorf("nothing is exported of kind %s, reason %s", kind, reason)
	return 0
}

// LockedLog counts a log's lines, and those that were written while a lock was held.
type LockedLog struct {
	Locked      func() bool
	Lines, Held int
}

// Write implements io.Writer.
func (l *LockedLog) Write(p []byte) (int, error) {
	l.Lines++
	if l.Locked() {
		l.Held++
	}
	return len(p), nil
}

// AttachMode is how tests of exact counts watch sockets: as fits the kernel, or as requested.
func AttachMode() platform.AttachMode { return platform.AttachMode(os.Getenv("PLUMBLINE_ATTACH_MODE")) }

// Platform is the kernel, watched like that.
func Platform(t testing.TB) *platform.Kernel {
	t.Helper()
	k, err := platform.Find(AttachMode())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Here returns the options of collectors of this machine, which log nothing.
func Here() collector.Options {
	return collector.Options{Log: slog.New(slog.DiscardHandler), Node: "here", ProcFS: "/proc", SysFS: "/sys", AttachMode: AttachMode()}
}

// Start returns a function that starts a collector, as it was made, until the test's end.
func Start(t testing.TB) func(collector.Collector, error) collector.Collector {
	return func(c collector.Collector, err error) collector.Collector {
		t.Helper()
		testkit.NeedBPF(t)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
		return c
	}
}

// updater makes a collector of this package fit for a registry.
type updater struct {
	t testing.TB
	c collector.Collector
}

// Describe implements prometheus.Collector.
func (u updater) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (u updater) Collect(ch chan<- prometheus.Metric) {
	if err := u.c.Update(ch); err != nil {
		u.t.Error(err)
	}
}

// Gather returns a collector's metric families.
func Gather(t testing.TB, c collector.Collector) []*dto.MetricFamily {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(updater{t, c})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// Labels returns a series' labels.
func Labels(m *dto.Metric) map[string]string {
	l := map[string]string{}
	for _, p := range m.Label {
		l[p.GetName()] = p.GetValue()
	}
	return l
}

// Log writes to a test's log.
type Log struct{ T testing.TB }

// Write implements io.Writer.
func (w Log) Write(p []byte) (int, error) {
	// A collector closed late may still log something.
	defer func() { _ = recover() }()
	w.T.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// OnceOf tries what other load on the machine can spoil, but never help.
func OnceOf(t testing.TB, attempts int, f func() error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return
		}
		if attempt == attempts {
			t.Fatal(err)
		}
		t.Logf("attempt %d: %v", attempt, err)
	}
}

// Median returns the middle one of the values, which it sorts.
func Median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// OwnMounts is for a test that mounts something.
func OwnMounts(t testing.TB) {
	t.Helper()
	if err := rig.OwnMounts(); errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
}

// OnePod is the cgroup of a pod.
const OnePod = "/kubepods/pod0fe7f6e5-0a3e-4a3e-9a0e-5d1f6a2b3c4d"

// AnotherPod is that of another one.
const AnotherPod = "/kubepods/pod11111111-2222-3333-4444-555555555555"

// OpenUp lets everybody into a folder and those above it, up to the file system's.
func OpenUp(t testing.TB, dir string) {
	t.Helper()
	for ; dir != "/" && dir != os.TempDir(); dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
