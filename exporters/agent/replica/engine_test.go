package replica

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
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

func startReplicaWire(t testing.TB, wire replicaWire, procfs string, tracing *collector.Tracing) *replicaMeter {
	t.Helper()
	testkit.NeedBPF(t)
	log := slog.New(slog.NewTextHandler(collectortest.Log{T: t}, nil))
	c := newReplica(collector.Options{Log: log, Node: "here", ProcFS: procfs, SysFS: "/sys", AttachMode: collectortest.AttachMode(), Tracing: tracing}, wire)
	m := &replicaMeter{Meter: operationtest.NewMeter(t), collector: c}
	c.wires[0].clock = func() uint64 { return collector.Monotonic() + m.ahead.Load() }
	if err := c.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	m.Add(log, "replica", c)
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

// replicaMeter is the meter of a replica collector.
type replicaMeter struct {
	*operationtest.Meter
	collector *replicaCollector
	stop      func()
	// ahead is by how many nanoseconds the collector's clock is ahead of the kernel's.
	ahead atomic.Uint64
}

// countsOf are all histograms' counts of a volume, pings left out, for a comparison at once.
func countsOf(r operationtest.Reading, v *testVolume) map[string]uint64 {
	counts := map[string]uint64{}
	for _, name := range []string{operationtest.RequestMetric, operationtest.ServiceMetric, operationtest.FrontendMetric} {
		r.Each(name, operationtest.Match{"volume": v.Name}, func(l operationtest.Match, m *dto.Metric) {
			if l["op"] != "ping" {
				counts[name+" "+l["address"]+" "+l["op"]] = m.GetHistogram().GetSampleCount()
			}
		})
	}
	return counts
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
