package table

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
)

func TestPrint(t *testing.T) {
	table := Table{Title: "What is measured", By: []model.LabelName{classLabel}, Columns: []Column{
		{Group: "load", Title: "tps", Unit: "number"},
		{Group: "write ms", Title: "queue", Unit: "milliseconds"},
		{Group: "write ms", Title: "device", Unit: "milliseconds"},
		{Group: "query", Title: "× local", Unit: "ratio"},
	}}
	values := Values{
		{"local": 40, "longhorn-r3": 39.96},
		{"local": 0.000012, "longhorn-r3": 0},
		{"local": 1.2345, "longhorn-r3": 0.5678},
		{"local": 1, "longhorn-r3": math.NaN()},
	}
	var out strings.Builder
	Print(&out, table, values, []string{"local", "longhorn-r3", "gone"})
	want := `What is measured
                 load -- write ms ---   query
class             tps   queue  device × local
local              40   0.012    1234    1.00
longhorn-r3      40.0       0     568       -
gone                -       -       -       -
`
	if out.String() != want {
		t.Errorf("have\n%s\nwant\n%s", out.String(), want)
	}
	missing := Missing(table, values, []string{"longhorn-r3"})
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
	count := func(tables []Table) (n int) {
		for _, t := range tables {
			n += len(t.Columns)
		}
		return n
	}
	all := count(spec.Tables)
	if n := count(Without(spec.Tables, map[string]string{"bpf": "refused"})); n == 0 || n >= all {
		t.Errorf("%d of %d columns without BPF", n, all)
	}
	if n := count(Live(spec.Tables)); n >= all {
		t.Errorf("the live tables have all %d columns", n)
	}
	bad := filepath.Join(t.TempDir(), "table.yaml")
	if err := os.WriteFile(bad, []byte("tables: [{by: [storageclass], columns: [{group: g, title: t, unit: furlongs, expr: up}]}]"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadSpec(bad); err == nil || !strings.Contains(err.Error(), "furlongs") {
		t.Errorf("an unknown unit gave %v", err)
	}
}

// A table by more labels than the class has the rows that its queries answer for.
func TestRowsByReplica(t *testing.T) {
	table := Table{By: []model.LabelName{classLabel, "replica"}, Columns: []Column{
		{Group: "round trip ms", Title: "write", Unit: "milliseconds"},
		{Group: "last to ack", Title: "%", Unit: "percent"},
	}}
	values := Values{{"r3 b": 0.002, "r3 a": 0.001}, {"r3 a": 0.25}}
	if missing := Missing(table, values, []string{"local"}); len(missing) != 1 || missing[0] != "r3 b: last to ack %" {
		t.Errorf("missing: %v", missing)
	}
	var out strings.Builder
	Print(&out, table, values, []string{"local"})
	lines := strings.Split(out.String(), "\n")
	if !strings.HasPrefix(lines[2], "r3 a ") || !strings.HasSuffix(lines[2], "    1.00    25.0") || !strings.HasPrefix(lines[3], "r3 b ") {
		t.Errorf("rows:\n%s", out.String())
	}
}
