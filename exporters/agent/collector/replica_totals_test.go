package collector

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
)

// The count of all operations grows with each histogram, and never falls when one is forgotten.
func TestOperationsSeen(t *testing.T) {
	totals, seen := newReplicaTotals(), operationsSeen{}
	add := func(volume string, n uint64) {
		l := replica.Latency{}
		l.Slots[3], l.Slots[7] = n, 1
		totals.addLatency(latencyLabels{replicaLabels: replicaLabels{Volume: volume}, View: replica.ViewRequest, Op: "write"}, &l, time.Now())
	}
	want := func(n uint64) {
		t.Helper()
		if seen.add(totals.latencies); seen.total != n {
			t.Errorf("%d operations, want %d", seen.total, n)
		}
	}
	want(0)
	add("a", 9)
	want(10)
	add("b", 4)
	want(15)
	want(15)
	totals.forget(replicaLabels{Volume: "a"})
	want(15)
	add("b", 1)
	want(17)
}
