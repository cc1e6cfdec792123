package collector

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/trace"
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
	s := traceSeries{newTraceMetrics()}
	begin := time.Now()
	chain := func(label string) *trace.Chain {
		return &trace.Chain{ServerName: label, Root: &trace.Span{Layer: trace.Server, Start: 1000, End: 2000}}
	}
	for i := range traceMaxServers {
		s.observe(chain(fmt.Sprint("ended ", i)), begin)
	}
	s.observe(chain("one too many"), begin)
	s.observe(chain(otherServer), begin)
	if n := s.perServer(t); s.overflow != 1 || len(n) != traceMaxServers+1 || n["one too many"] != 0 || n[otherServer] == 0 {
		t.Errorf("%d chains counted as another server's, %d servers", s.overflow, len(n))
	}
	running := map[string]bool{"ended 7": true} // it runs yet
	s.forget(running, begin.Add(keepTime))
	if n := s.perServer(t); len(n) != traceMaxServers+1 {
		t.Errorf("%d servers are left before their time", len(n))
	}
	s.forget(running, begin.Add(keepTime+time.Second))
	// One for each verdict, and the histogram.
	if n := s.perServer(t); len(n) != 2 || n["ended 7"] != 4 || n[otherServer] != 4 {
		t.Errorf("after their time %v", n)
	}
	now := begin.Add(keepTime + 2*time.Second)
	s.observe(chain("new"), now)
	if n := s.perServer(t); n["new"] != 4 || s.overflow != 1 {
		t.Errorf("%v, %d counted as another server's", n, s.overflow)
	}
	// The one that ran goes as long after its end.
	s.forget(nil, now.Add(keepTime))
	if n := s.perServer(t); len(n) != 2 || n["new"] == 0 {
		t.Errorf("%v", n)
	}
}
