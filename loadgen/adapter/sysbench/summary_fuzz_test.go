package sysbench

import (
	"bytes"
	"os"
	"testing"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// FuzzSummary reads what sysbench reports at its end: events are there only if they were seen.
func FuzzSummary(f *testing.F) {
	text, err := os.ReadFile("testdata/summary-1.0.20.txt")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("total number of events: -1\n total number of events:18446744073709551616\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Summary
		adapter.Lines(bytes.NewReader(text), s.Line)
		if s.Events > 0 && !s.Seen {
			t.Errorf("%+v", s)
		}
	})
}
