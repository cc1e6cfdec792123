package operation

import (
	"testing"
	"time"
)

// The count of all operations grows with each histogram, and never falls when one is forgotten.
func TestSeen(t *testing.T) {
	totals, seen := NewTotals(), Seen{}
	add := func(volume string, n uint64) {
		l := Latency{}
		l.Slots[3], l.Slots[7] = n, 1
		totals.AddLatency(LatencyLabels{Labels: Labels{Volume: volume}, View: ViewRequest, Op: "write"}, &l, time.Now())
	}
	want := func(n uint64) {
		t.Helper()
		if seen.Add(totals.Latencies); seen.Total != n {
			t.Errorf("%d operations, want %d", seen.Total, n)
		}
	}
	want(0)
	add("a", 9)
	want(10)
	add("b", 4)
	want(15)
	want(15)
	totals.Forget(Labels{Volume: "a"})
	want(15)
	add("b", 1)
	want(17)
}
