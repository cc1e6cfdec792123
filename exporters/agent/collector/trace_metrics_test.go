package collector

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/trace"
)

// A server has all layers from its first statement on: what it never waited for is 0, and not unknown.
func TestTraceLayersFromTheStart(t *testing.T) {
	m := newTraceMetrics()
	m.observe(&trace.Chain{ServerName: "shop", Root: &trace.Span{Layer: trace.Server, Start: 1000, End: 5000}})
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.layers)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		for _, s := range f.Metric {
			counts[labels(s)["layer"]] = s.GetHistogram().GetSampleCount()
		}
	}
	for _, layer := range trace.Layers {
		want := uint64(0)
		if layer == trace.Server {
			want = 1
		}
		if got, ok := counts[string(layer)]; !ok || got != want {
			t.Errorf("layer %s: %d observations (there: %v), want %d", layer, got, ok, want)
		}
	}
}
