package table

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestPrint(t *testing.T) {
	columns := []Column{
		{Group: "load", Title: "tps", Unit: "number"},
		{Group: "write ms", Title: "queue", Unit: "milliseconds"},
		{Group: "write ms", Title: "device", Unit: "milliseconds"},
		{Group: "query", Title: "× local", Unit: "ratio"},
	}
	values := Values{
		{"local": 40, "longhorn-r3": 39.96},
		{"local": 0.000012, "longhorn-r3": 0},
		{"local": 1.2345, "longhorn-r3": 0.5678},
		{"local": 1, "longhorn-r3": math.NaN()},
	}
	var out strings.Builder
	Header(&out, columns)
	Rows(&out, columns, values, []string{"local", "longhorn-r3", "gone"})
	want := `                 load -- write ms ---   query
class             tps   queue  device × local
local              40   0.012    1234    1.00
longhorn-r3      40.0       0     568       -
gone                -       -       -       -
`
	if out.String() != want {
		t.Errorf("have\n%s\nwant\n%s", out.String(), want)
	}
	missing := Missing(columns, values, []string{"longhorn-r3"})
	if len(missing) != 1 || missing[0] != "longhorn-r3: query × local" {
		t.Errorf("missing: %v", missing)
	}
}

// The project's own table file is read, and a machine without BPF loses only what needs it.
func TestSpec(t *testing.T) {
	spec, err := ReadSpec(filepath.Join("..", "table.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	without := Without(spec.Columns, map[string]string{"bpf": "refused"})
	if len(without) == 0 || len(without) >= len(spec.Columns) {
		t.Errorf("%d of %d columns without BPF", len(without), len(spec.Columns))
	}
	if live := Live(spec.Columns); len(live) >= len(spec.Columns) {
		t.Errorf("the live table has all %d columns", len(live))
	}
	bad := filepath.Join(t.TempDir(), "table.yaml")
	if err := os.WriteFile(bad, []byte("columns: [{group: g, title: t, unit: furlongs, expr: up}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSpec(bad); err == nil || !strings.Contains(err.Error(), "furlongs") {
		t.Errorf("an unknown unit gave %v", err)
	}
}
