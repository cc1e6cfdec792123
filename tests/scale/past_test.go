package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The rules' look-backs are found with the range of a subquery and with offsets, and nothing short is.
func TestLookback(t *testing.T) {
	far, err := lookback()
	if err != nil {
		t.Fatal(err)
	}
	if len(far) == 0 {
		t.Fatal("the rules look back at nothing")
	}
	for name, d := range far {
		if d < pastFrom || d > 48*time.Hour {
			t.Errorf("%s: %s", name, d)
		}
	}
	if far["replica:slowdown:ratio4m_above1_3"] != 3*time.Hour {
		t.Errorf("replica:slowdown:ratio4m_above1_3 is read over %s, want 3h", far["replica:slowdown:ratio4m_above1_3"])
	}
}

// A past reaches as far back as requested, varies a little if it is a measure, and not at all if it is a count.
func TestEncodePast(t *testing.T) {
	var text bytes.Buffer
	n, err := encodePast(&text, []past{
		{model.Metric{"__name__": "a:day", "volume": "v\"1", "node": `n\`}, 0.125, 24 * time.Hour},
		{model.Metric{"__name__": "b:hours"}, 3, 3 * time.Hour},
	}, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if n != 27 || len(lines) != 28 || lines[27] != "# EOF" {
		t.Fatalf("%d samples, %d lines:\n%s", n, len(lines), text.String())
	}
	values := map[string]bool{}
	for _, line := range lines[:24] {
		rest, ok := strings.CutPrefix(line, `a:day{node="n\\",volume="v\"1"} 0.1`)
		if !ok {
			t.Errorf("%s", line)
		}
		values[rest] = true
	}
	if len(values) != 24 {
		t.Errorf("%d different samples, want 24", len(values))
	}
	for _, line := range lines[24:27] {
		if !strings.HasPrefix(line, "b:hours 3 ") {
			t.Errorf("%s", line)
		}
	}
}

// promtool makes blocks of it.
func TestWritePast(t *testing.T) {
	folder := t.TempDir()
	n, err := writePast(context.Background(), testkit.Tool(t, "promtool"), folder, []past{
		{model.Metric{"__name__": "volume:day:info", "volume": `v"1\`, "node": "n"}, 0.125, 24 * time.Hour},
	}, 5*time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if n != 288 {
		t.Errorf("%d samples, want 288", n)
	}
	if blocks, err := filepath.Glob(filepath.Join(folder, "data", "*", "meta.json")); err != nil || len(blocks) == 0 {
		t.Errorf("no block was made (%v)", err)
	}
}
