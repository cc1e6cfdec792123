package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// testVolume is a volume of a real engine and replicas, with what the tests do to it.
type testVolume struct {
	*rig.Volume
	t testing.TB
}

// newTestVolume starts n replicas; Start starts the engine on them.
func newTestVolume(t testing.TB, n int, options ...string) *testVolume {
	t.Helper()
	testkit.Tool(t, "longhorn-engine")
	return &testVolume{rig.NewVolume(t, n, options...), t}
}

// startReplicaCollector runs the collector for the test's own volumes only: other tests on
// this machine run engines, too. change may alter the wire before it is loaded.
func startReplicaCollector(t testing.TB, v *testVolume, change ...func(*replicaWire)) *replicaMeter {
	t.Helper()
	return startReplicaWire(t, testWire(v, change...), v.ProcFS, nil)
}

// testWire is the wire of the test's own volumes.
func testWire(v *testVolume, change ...func(*replicaWire)) replicaWire {
	wire := dataconnWire()
	recognise := wire.recognise
	wire.recognise = func(args []string, hostname func() string) (*replicaProcess, error) {
		p, err := recognise(args, hostname)
		if p == nil || p.Volume != v.Name {
			return nil, nil
		}
		return p, err
	}
	for _, c := range change {
		c(&wire)
	}
	return wire
}

func startReplicaWire(t testing.TB, wire replicaWire, procfs string, tracing *Tracing) *replicaMeter {
	t.Helper()
	testkit.NeedBPF(t)
	log := slog.New(slog.NewTextHandler(replicaLog{t}, nil))
	c := newReplica(Options{Log: log, Node: "here", ProcFS: procfs, SysFS: "/sys", Boundary: testBoundary(), Tracing: tracing}, wire)
	m := &replicaMeter{t: t, collector: c, registry: prometheus.NewRegistry()}
	c.wires[0].clock = func() uint64 { return monotonic() + m.ahead.Load() }
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	set := exporterkit.NewSetWithTimeout(log, testkit.Patience)
	set.Add("replica", c)
	m.registry.MustRegister(set)
	var once sync.Once
	m.stop = func() {
		once.Do(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	t.Cleanup(m.stop)
	return m
}

type replicaLog struct{ t testing.TB }

func (w replicaLog) Write(p []byte) (int, error) {
	// A collector closed late may still log something.
	defer func() { _ = recover() }()
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

// replicaMeter reads the collector as Prometheus would.
type replicaMeter struct {
	t         testing.TB
	collector *replicaCollector
	registry  *prometheus.Registry
	stop      func()
	// ahead is by how many nanoseconds the collector's clock is ahead of the kernel's.
	ahead atomic.Uint64
}

// replicaReading is one scrape.
type replicaReading map[string]*dto.MetricFamily

func (m *replicaMeter) read() replicaReading {
	m.t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		m.t.Fatal(err)
	}
	r := replicaReading{}
	for _, f := range families {
		r[f.GetName()] = f
	}
	if s := r.value("plumbline_scrape_collector_success", nil); s != 1 {
		m.t.Fatal("the scrape failed; see the log")
	}
	return r
}

type match map[string]string

func (r replicaReading) each(name string, want match, do func(match, *dto.Metric)) {
	for _, metric := range r[name].GetMetric() {
		got := match{}
		for _, p := range metric.GetLabel() {
			got[p.GetName()] = p.GetValue()
		}
		matches := true
		for k, v := range want {
			matches = matches && got[k] == v
		}
		if matches {
			do(got, metric)
		}
	}
}

// value adds up counters and gauges.
func (r replicaReading) value(name string, want match) float64 {
	var sum float64
	r.each(name, want, func(_ match, m *dto.Metric) { sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return sum
}

// count and sum add up histograms.
func (r replicaReading) count(name string, want match) (n uint64) {
	r.each(name, want, func(_ match, m *dto.Metric) { n += m.GetHistogram().GetSampleCount() })
	return n
}

func (r replicaReading) sum(name string, want match) (sum float64) {
	r.each(name, want, func(_ match, m *dto.Metric) { sum += m.GetHistogram().GetSampleSum() })
	return sum
}

// mean is the mean of what a histogram got since an earlier replicaReading.
func (r replicaReading) mean(since replicaReading, name string, want match) float64 {
	return (r.sum(name, want) - since.sum(name, want)) / float64(r.count(name, want)-since.count(name, want))
}

// clean fails the test if anything was lost or not understood.
func (r replicaReading) clean(t testing.TB) {
	t.Helper()
	for _, name := range []string{"plumbline_replica_lost_total", "plumbline_replica_resyncs_total", "plumbline_replica_unmatched_total",
		"plumbline_replica_unrecognised_total", "plumbline_replica_label_overflow_total", "plumbline_replica_process_errors_total"} {
		r.each(name, nil, func(l match, m *dto.Metric) {
			if v := m.GetCounter().GetValue(); v != 0 {
				t.Errorf("%s%v is %v", name, l, v)
			}
		})
	}
}

const (
	requestMetric  = "plumbline_replica_request_duration_seconds"
	serviceMetric  = "plumbline_replica_service_seconds"
	frontendMetric = "plumbline_volume_frontend_seconds"
)

// inflight adds up what is under way in all views.
func (r replicaReading) inflight() float64 {
	return r.value("plumbline_replica_requests_in_flight", nil) + r.value("plumbline_replica_services_in_flight", nil) +
		r.value("plumbline_volume_frontend_in_flight", nil)
}

// counts are all histograms' counts of a volume, pings left out, for a comparison at once.
func (r replicaReading) counts(v *testVolume) map[string]uint64 {
	counts := map[string]uint64{}
	for _, name := range []string{requestMetric, serviceMetric, frontendMetric} {
		r.each(name, match{"volume": v.Name}, func(l match, m *dto.Metric) {
			if l["op"] != "ping" {
				counts[name+" "+l["address"]+" "+l["op"]] = m.GetHistogram().GetSampleCount()
			}
		})
	}
	return counts
}

func (m *replicaMeter) eventually(what string, ok func(replicaReading) bool) replicaReading {
	m.t.Helper()
	var r replicaReading
	testkit.Eventually(m.t, testkit.Patience, func() error {
		r = m.read()
		if !ok(r) {
			return errors.New(what)
		}
		return nil
	})
	return r
}

// settled waits until nothing is under way: an answer is with its reader a little before the
// call that sent it returns and is counted.
func (m *replicaMeter) settled() replicaReading {
	m.t.Helper()
	return m.eventually("operations are under way", func(r replicaReading) bool { return r.inflight() == 0 })
}

// followed waits until the collector follows that many processes.
func (m *replicaMeter) followed(n int) {
	m.t.Helper()
	m.eventually(fmt.Sprintf("%d processes followed", n), func(r replicaReading) bool {
		return r.value("plumbline_replica_processes", nil) == float64(n)
	})
}

func diffCounts(t testing.TB, got, want map[string]uint64) {
	t.Helper()
	keys := slices.Sorted(maps.Keys(want))
	for k := range got {
		if _, ok := want[k]; !ok {
			keys = append(keys, k)
		}
	}
	for _, k := range keys {
		if got[k] != want[k] {
			t.Errorf("%s: %d, want %d", k, got[k], want[k])
		}
	}
}
