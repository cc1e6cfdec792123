package tracer

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/rules/layers"
)

// traceSeries are the metrics of chains as a collector of their own.
type traceSeries struct{ *traceMetrics }

func (traceSeries) Describe(chan<- *prometheus.Desc) {}

func (s traceSeries) Collect(ch chan<- prometheus.Metric) { s.send(ch, trace.Counts{}) }

// perServer counts the series of each server.
func (s traceSeries) perServer(t *testing.T) map[string]int {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(s)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "server" {
					n[l.GetValue()]++
				}
			}
		}
	}
	return n
}

// The series of a server go as long after its end as those of the query collector, and make room for others.
func TestTraceServersForgotten(t *testing.T) {
	s := traceSeries{newMetrics()}
	begin := time.Now()
	chain := func(label string) *trace.Chain {
		return &trace.Chain{ServerName: label, Root: &trace.Span{Layer: layers.CPU, Start: 1000, End: 2000}}
	}
	for i := range maxServers {
		s.observe(chain(fmt.Sprint("ended ", i)), begin)
	}
	s.observe(chain("one too many"), begin)
	s.observe(chain(collector.OtherServer), begin)
	if n := s.perServer(t); s.overflow != 1 || len(n) != maxServers+1 || n["one too many"] != 0 || n[collector.OtherServer] == 0 {
		t.Errorf("%d chains counted as another server's, %d servers", s.overflow, len(n))
	}
	running := map[string]bool{"ended 7": true} // it runs yet
	s.forget(running, begin.Add(collector.KeepTime))
	if n := s.perServer(t); len(n) != maxServers+1 {
		t.Errorf("%d servers are left before their time", len(n))
	}
	s.forget(running, begin.Add(collector.KeepTime+time.Second))
	// One for each verdict, and a histogram for each layer.
	each := 3 + len(layers.Names(layers.IsTraced))
	if n := s.perServer(t); len(n) != 2 || n["ended 7"] != each || n[collector.OtherServer] != each {
		t.Errorf("after their time %v", n)
	}
	now := begin.Add(collector.KeepTime + 2*time.Second)
	s.observe(chain("new"), now)
	if n := s.perServer(t); n["new"] != each || s.overflow != 1 {
		t.Errorf("%v, %d counted as another server's", n, s.overflow)
	}
	// The one that ran goes as long after its end.
	s.forget(nil, now.Add(collector.KeepTime))
	if n := s.perServer(t); len(n) != 2 || n["new"] == 0 {
		t.Errorf("%v", n)
	}
}

// A server has all layers from its first statement on: what it never waited for is 0, and not unknown.
func TestTraceLayersFromTheStart(t *testing.T) {
	m := newMetrics()
	m.observe(&trace.Chain{ServerName: "shop", Root: &trace.Span{Layer: layers.CPU, Start: 1000, End: 5000}}, time.Now())
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.layers)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]uint64{}
	for _, f := range families {
		for _, s := range f.Metric {
			counts[collectortest.Labels(s)["layer"]] = s.GetHistogram().GetSampleCount()
		}
	}
	for _, layer := range layers.Names(layers.IsTraced) {
		want := uint64(0)
		if layer == layers.CPU {
			want = 1
		}
		if got, ok := counts[layer]; !ok || got != want {
			t.Errorf("layer %s: %d observations (there: %v), want %d", layer, got, ok, want)
		}
	}
}
