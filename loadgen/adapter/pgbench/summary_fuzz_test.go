package pgbench

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// FuzzSummary reads what pgbench reports at its end and while it makes its tables. Whatever that
// is, other lines before it change nothing.
func FuzzSummary(f *testing.F) {
	text, err := os.ReadFile("testdata/summary-15.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("number of transactions actually processed: 99999999999999999999\nlatency average = \n"))
	f.Add([]byte("latency average = NaN ms\ntps = \nrate limit schedule lag: avg\n"))
	f.Add([]byte("done in 1.5 s (drop tables 0.1 s, create tables 0.2 s, vacuum 9e999 s)."))
	f.Fuzz(func(t *testing.T, text []byte) {
		var alone, after Summary
		adapter.Lines(bytes.NewReader(text), alone.Line)
		adapter.Lines(bytes.NewReader(append([]byte("pgbench (15.0)\n"), text...)), after.Line)
		// NaN is not itself: compare what may be compared.
		if alone.Seen != after.Seen || alone.Processed != after.Processed || alone.Failed != after.Failed || alone.Skipped != after.Skipped {
			t.Errorf("%+v, and after another line %+v", alone, after)
		}
		for line := range strings.Lines(string(text)) {
			for _, p := range ParseInit(line) {
				if p.Name == "" {
					t.Errorf("%q: a phase without a name", line)
				}
			}
		}
	})
}
