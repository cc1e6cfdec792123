package baseline

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

func TestParseWindow(t *testing.T) {
	for _, text := range []string{"nightly backup 02:00-02:30 UTC", "over midnight 23:30-00:15 UTC", "longhorn-r3=trim Mon 00:00-24:00 UTC"} {
		w, err := ParseWindow(text, 3)
		if err != nil || w.String() != text || w.Ratio != 3 {
			t.Errorf("%q is read as %q (%+v), %v", text, w, w, err)
		}
	}
	for text, why := range map[string]string{
		"nightly backup 02:00-02:30":         "HH:MM",
		"nightly backup 02:00-02:30 CET":     "HH:MM",
		"02:00-02:30 UTC":                    "HH:MM",
		"=backup 02:00-02:30 UTC":            "",
		"nightly backup 24:00-24:30 UTC":     "no such time",
		"nightly backup 02:00-25:00 UTC":     "no such time",
		"nightly backup 02:00-02:00 UTC":     "ends when it begins",
		"nightly backup 2:00-2:30 UTC":       "HH:MM",
		"a\nb 02:00-02:30 UTC":               "HH:MM",
		"nightly backup Mon-Fri 02:00 UTC":   "HH:MM",
		"nightly backup 02:60-03:00 UTC":     "HH:MM",
		"nightly backup 02:00-02:30 UTC now": "HH:MM",
	} {
		if w, err := ParseWindow(text, 3); why != "" && (err == nil || !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), "expected window")) {
			t.Errorf("%q is read as %+v, %v; want %q", text, w, err, why)
		}
	}
	for _, ratio := range []float64{0, 1, -3} {
		if _, err := ParseWindow("nightly backup 02:00-02:30 UTC", ratio); err == nil {
			t.Errorf("%g times is taken for slowness", ratio)
		}
	}
}

// Prometheus' value of a window's expression is that of Contains, every quarter of an hour
// of ten days.
func TestWindowExpr(t *testing.T) {
	t.Parallel()
	var rules, tests strings.Builder
	rules.WriteString("groups:\n  - name: windows\n    rules:\n")
	tests.WriteString("rule_files: [windows.yaml]\nevaluation_interval: 15m\ntests:\n- interval: 15m\n  promql_expr_test:\n")
	// promtool's time begins on a Thursday.
	for i, text := range []string{"a 02:00-02:30 UTC", "b 23:30-00:45 UTC", "c Sat 23:30-00:45 UTC", "d Mon 10:15-24:00 UTC", "e 00:00-24:00 UTC", "f Sun 12:00-11:45 UTC"} {
		w, err := ParseWindow(text, 2.5)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&rules, "      - {record: 'window:%d', expr: '%s'}\n", i, w.Expr())
		for m := 0; m < 10*24*60; m += 15 {
			want := "[]"
			if w.Contains(time.Unix(int64(m)*60, 0)) {
				want = fmt.Sprintf(`[{labels: 'window:%d', value: 2.5}]`, i)
			}
			fmt.Fprintf(&tests, "  - {expr: 'window:%d', eval_time: %dm, exp_samples: %s}\n", i, m, want)
		}
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"windows.yaml": rules.String(), "test.yaml": tests.String()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := exec.Command(testkit.Tool(t, "promtool"), "test", "rules", filepath.Join(dir, "test.yaml")).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%.3000s", err, out)
	}
}
