package collector

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// A label that is no UTF-8 ends neither the agent nor a scrape: it is sanitized, and counted.
func TestInvalidSeries(t *testing.T) {
	d := prometheus.NewDesc("plumbline_test", "Test.", []string{"name"}, nil)
	before := invalidSeries.Load()
	for _, m := range []prometheus.Metric{Gauge(d, 1, "a\xffb"), Counter(d, 1, "a\xffb")} {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		if got := out.Label[0].GetValue(); got != "a\uFFFDb" {
			t.Errorf("the label is %q", got)
		}
	}
	if n := invalidSeries.Load() - before; n != 2 {
		t.Errorf("%d series counted, want 2", n)
	}
	if err := Gauge(d, 1, "one", "too many").Write(&dto.Metric{}); err == nil {
		t.Error("a mistake in the program is hidden")
	}
}

// The agent's metrics about itself report how many calls hang and were late.
func TestSelf(t *testing.T) {
	calls := untrusted.NewCalls(time.Millisecond, 4)
	end := make(chan struct{})
	defer close(end)
	if err := calls.Do("hangs", func() error { <-end; return nil }); err == nil {
		t.Fatal("the call did not hang")
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewSelf(calls))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		got[f.GetName()] = f.Metric[0].GetGauge().GetValue() + f.Metric[0].GetCounter().GetValue()
	}
	for _, name := range []string{"plumbline_agent_file_calls_hanging", "plumbline_agent_file_calls_late_total"} {
		if got[name] != 1 {
			t.Errorf("%s is %v, want 1", name, got[name])
		}
	}
	if _, ok := got["plumbline_agent_invalid_series_total"]; !ok {
		t.Errorf("only %v", got)
	}
}
