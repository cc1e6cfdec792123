package tracer

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Such a statement is reported as one that lost events, others are not.
func TestTraceUnseenStatement(t *testing.T) {
	var mu sync.Mutex
	var chains []*trace.Chain
	o := collectortest.Here()
	o.Tracing = &collector.Tracing{}
	c := collectortest.Start(t)(New(o, Options{Sample: 1, Sink: func(c *trace.Chain) {
		mu.Lock()
		defer mu.Unlock()
		chains = append(chains, c)
	}})).(*Collector)
	var unseen atomic.Uint64
	o.Tracing.SeenReplicas(func() (uint64, error) { return unseen.Load(), nil }, nil)
	joiner := trace.NewJoiner(trace.Options{Every: 1})
	var seen traceProgress
	step := func() {
		t.Helper()
		if err := c.step(joiner, &seen); err != nil {
			t.Fatal(err)
		}
	}
	lostIn := func(meanwhile func()) bool {
		t.Helper()
		step()
		const pid = 1 << 30
		now := collector.Monotonic()
		joiner.Add(trace.Event{Kind: trace.KindWait, Pid: pid, Subtype: 2, Start: now - 1000, End: now})
		joiner.Add(trace.Event{Kind: trace.KindStatement, Pid: pid, Start: now - 2000, End: now})
		meanwhile()
		var found *trace.Chain
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			step()
			mu.Lock()
			defer mu.Unlock()
			for _, c := range chains {
				if c.PID == pid && c.ServerName == collector.OtherServer && c.Root.Start >= now-2000 {
					found = c
					return nil
				}
			}
			return errors.New("no chain yet")
		})
		return slices.Contains(found.Reasons, trace.LostEvents)
	}
	if lostIn(func() {}) {
		t.Error("events are reported as lost")
	}
	if !lostIn(func() { unseen.Add(1) }) {
		t.Error("what the programs could not report is not shown")
	}
}
