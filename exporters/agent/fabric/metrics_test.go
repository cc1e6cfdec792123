package fabric

import (
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
)

// While a side's map cannot be read there are no counts of paths at all: those of what is gone alone would look like a
// counter's reset.
func TestFabricCountsNotWhole(t *testing.T) {
	b := newISCSIBench(t)
	b.session(1, "iqn.x:db", "10.0.0.1", "sda", "0 0")
	b.disk(1, 10)
	b.put(b.collector.initiator, "unanswered", uint32(1), uint64(3))
	b.collector.scan()
	if n := b.read().Count(pathMetric, nil); n != 10 {
		t.Fatalf("%d commands, want 10", n)
	}
	if err := b.collector.initiator.kernel.collection.Maps["latencies"].Close(); err != nil {
		t.Fatal(err)
	}
	families, err := b.meter.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*dto.MetricFamily{}
	for _, f := range families {
		got[f.GetName()] = f
		if name := f.GetName(); name == pathMetric || strings.HasPrefix(name, "plumbline_volume_path_") && strings.HasSuffix(name, "_total") {
			t.Errorf("%s is %v", name, f.GetMetric())
		}
	}
	r := operationtest.Reading(got)
	if n := r.Value("plumbline_replica_operations_total", nil); n != 10 {
		t.Errorf("%v operations in all, want 10", n)
	}
	if n := r.Value("plumbline_scrape_collector_success", nil); n != 0 {
		t.Error("the scrape is a success")
	}
}
