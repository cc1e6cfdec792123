package blockio_test

import (
	"os"
	"strconv"
	"testing"

	"github.com/cilium/ebpf"
	"go.yaml.in/yaml/v3"
)

// config is the part of blkio.yaml that the object must agree with.
type config struct {
	Metrics struct {
		Histograms []struct {
			Name       string
			Type       string    `yaml:"bucket_type"`
			Multiplier float64   `yaml:"bucket_multiplier"`
			Bounds     []float64 `yaml:"bucket_keys"`
			Labels     []label
		}
		Counters []struct {
			Name   string
			Labels []label
		}
	}
}

type label struct {
	Name     string
	Size     uint32
	Padding  uint32
	Decoders []struct {
		Name      string
		StaticMap map[string]string `yaml:"static_map"`
	}
}

func readConfig(t *testing.T) config {
	t.Helper()
	text, err := os.ReadFile("blkio.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var c config
	if err := yaml.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	if len(c.Metrics.Histograms) != 3 {
		t.Fatalf("%d histograms, want 3", len(c.Metrics.Histograms))
	}
	return c
}

// bounds returns the histograms' upper bounds in nanoseconds, by slot.
func bounds(t *testing.T) []uint64 {
	t.Helper()
	var ns []uint64
	for _, b := range readConfig(t).Metrics.Histograms[0].Bounds {
		ns = append(ns, uint64(b))
	}
	return ns
}

// The configuration repeats what the program does: slots, bounds, keys.
func TestConfigMatchesObject(t *testing.T) {
	spec, err := ebpf.LoadCollectionSpec("blkio.bpf.o")
	if err != nil {
		t.Fatal(err)
	}
	checkMap := func(name string, labels []label) {
		m := spec.Maps[name]
		if m == nil {
			t.Errorf("%s: no such map", name)
			return
		}
		var size uint32
		for _, l := range labels {
			size += l.Size + l.Padding
		}
		if size != m.KeySize || m.ValueSize != 8 {
			t.Errorf("%s: labels have %d bytes, the map's key %d and its value %d (must be 8)", name, size, m.KeySize, m.ValueSize)
		}
	}
	c := readConfig(t).Metrics
	for _, counter := range c.Counters {
		checkMap(counter.Name, counter.Labels)
	}
	for _, h := range c.Histograms {
		checkMap(h.Name, h.Labels)
		if h.Type != "fixed" || h.Multiplier != 1e-9 {
			t.Errorf("%s: type %s, multiplier %v", h.Name, h.Type, h.Multiplier)
		}
		bucket := h.Labels[len(h.Labels)-1]
		slots := bucket.Decoders[len(bucket.Decoders)-1].StaticMap
		if len(slots) != len(h.Bounds)+1 {
			t.Errorf("%s: %d slots for %d bounds and the sum", h.Name, len(slots), len(h.Bounds))
		}
		for i, bound := range h.Bounds {
			if slots[strconv.Itoa(i)] != strconv.FormatFloat(bound, 'f', -1, 64) {
				t.Errorf("%s: slot %d is %s, bound %.0f", h.Name, i, slots[strconv.Itoa(i)], bound)
			}
		}
		// ebpf_exporter looks for the sum there.
		last := h.Bounds[len(h.Bounds)-1]
		if sum := slots[strconv.Itoa(len(h.Bounds))]; sum != strconv.FormatFloat(last+1, 'f', -1, 64) {
			t.Errorf("%s: the sum is at %s, last bound %.0f", h.Name, sum, last)
		}
	}
}
