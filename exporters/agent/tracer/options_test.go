package tracer

import (
	"log/slog"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
)

// What cannot be is refused before anything is loaded.
func TestTraceOptions(t *testing.T) {
	o := collector.Options{Log: slog.New(slog.DiscardHandler), Tracing: &collector.Tracing{}}
	for name, own := range map[string]Options{
		"a sample of less than nothing": {Sample: -1},
		"too many slow statements":      {Slowest: MaxSlowest + 1},
		"too large a ring":              {RingBytes: maxRing + 1},
		"no address":                    {OTLP: "tempo:4318"},
	} {
		if _, err := New(o, own); err == nil {
			t.Errorf("%s is not refused", name)
		}
	}
	if _, err := New(collector.Options{Log: o.Log}, Options{}); err == nil {
		t.Error("nothing that reports events is not refused")
	}
	c, err := New(o, Options{RingBytes: 5000})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.(*Collector).own; got.RingBytes != 8192 || got.Sample != defaultSample || got.Slowest != defaultSlowest {
		t.Errorf("options %+v", got)
	}
}
