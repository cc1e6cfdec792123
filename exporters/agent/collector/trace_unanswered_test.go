package collector

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The trace collector gets a request to a replica that has no answer: while it is under way, and when its connection is
// closed.
func TestTraceUnanswered(t *testing.T) {
	a := startTracer(t, TraceOptions{})
	// With the collector's maps, but nobody who takes what is reported.
	tracing := &Tracing{}
	tracing.share(a.tracer.collection.Maps)
	l, port := dataListener(t)
	m := startSelfTraced(t, replicaProcess{Backend: "longhorn-v1", Role: replica.Engine, Volume: "silent"}, tracing)
	client, server := pair(t, l)
	write := func(id uint32) {
		t.Helper()
		request := encodeMessage(dataconn.MagicLonghorn, id, 1, uint64(id)<<12, 4096, make([]byte, 4096))
		send(t, client, request)
		receive(t, server, request)
	}
	for id := uint32(1); id <= 3; id++ {
		write(id)
		answer := encodeMessage(dataconn.MagicLonghorn, id, 2, uint64(id)<<12, 0, nil)
		send(t, server, answer)
		receive(t, client, answer)
	}
	tracing.takeUnanswered()
	begin := monotonic()
	write(4)
	sent := monotonic()
	told := func(after uint64) (q trace.Event) {
		t.Helper()
		testkit.Eventually(t, testkit.Patience, func() error {
			all, _ := tracing.takeUnanswered()
			for _, e := range all {
				if e.Request != 4 {
					return fmt.Errorf("%+v is reported", e)
				}
				if e.End > after {
					q = e
					return nil
				}
			}
			return errors.New("nothing reports it")
		})
		return q
	}
	q := told(sent)
	if q.Kind != trace.KindOperation || q.How != uint8(replica.ViewRequest) || replica.Ops[q.What] != "write" || q.Offset != 4<<12 || q.Size != 4096 ||
		q.RemotePort != port || q.Start < begin || q.Start > sent {
		t.Errorf("%+v, sent between %d and %d to port %d", q, begin, sent, port)
	}
	closed := monotonic()
	_ = client.Close()
	if again := told(closed); again.Start != q.Start {
		t.Errorf("another request: %+v", again)
	}
	m.eventually("it is counted", func(r replicaReading) bool { return r.value("plumbline_replica_request_unanswered_total", nil) == 1 })
}

// What the programs on a storage wire could not report makes the statements of that time incomplete.
func TestTraceUntold(t *testing.T) {
	a := startTracer(t, TraceOptions{})
	m := startSelfTraced(t, replicaProcess{Backend: "longhorn-v1", Role: replica.Engine, Volume: "full"}, a.options.Tracing)
	f := m.collector.wires[0]
	// A slot that was given out, and one that was not.
	if !a.options.Tracing.followed(1) || a.options.Tracing.followed(2) {
		t.Errorf("the first process is followed: %v, a second one: %v", a.options.Tracing.followed(1), a.options.Tracing.followed(2))
	}
	before, err := a.options.Tracing.unseen()
	if err != nil {
		t.Fatal(err)
	}
	addEvent(t, f, replica.EventLostRequest)
	if n, err := a.options.Tracing.unseen(); err != nil || n != before+1 {
		t.Errorf("%d, %v after %d and a lost request", n, err, before)
	}
	addEvent(t, f, replica.EventLostSeries)
	if n, err := a.options.Tracing.unseen(); err != nil || n != before+1 {
		t.Errorf("%d, %v: a series that found no room is no operation", n, err)
	}
	m.stop()
	if a.options.Tracing.followed(1) {
		t.Error("a collector that has ended follows a process")
	}
	if n, err := a.options.Tracing.unseen(); n != 0 || err != nil {
		t.Errorf("%d, %v of a collector that has ended", n, err)
	}
}

// Such a statement is reported as one that lost events, others are not.
func TestTraceUntoldStatement(t *testing.T) {
	a := startTracer(t, TraceOptions{Sample: 1})
	var unseen atomic.Uint64
	a.options.Tracing.seenReplicas(func() (uint64, error) { return unseen.Load(), nil }, nil)
	joiner := trace.NewJoiner(trace.Options{Every: 1})
	var seen traceProgress
	step := func() {
		t.Helper()
		if err := a.tracer.step(joiner, &seen); err != nil {
			t.Fatal(err)
		}
	}
	lostIn := func(meanwhile func()) bool {
		t.Helper()
		step()
		const pid = 1 << 30
		now := monotonic()
		joiner.Add(trace.Event{Kind: trace.KindWait, Pid: pid, What: 2, Start: now - 1000, End: now})
		joiner.Add(trace.Event{Kind: trace.KindStatement, Pid: pid, Start: now - 2000, End: now})
		meanwhile()
		var found *trace.Chain
		testkit.Eventually(t, testkit.Patience, func() error {
			step()
			for _, c := range a.of(otherServer, now-2000) {
				if c.PID == pid {
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

// addEvent counts an event as the programs do.
func addEvent(t *testing.T, f *replicaFollower, e replica.Event) {
	t.Helper()
	events := f.kernel.collection.Maps["events"]
	var n []uint64
	if err := events.Lookup(uint32(e), &n); err != nil {
		t.Fatal(err)
	}
	n[0]++
	if err := events.Put(uint32(e), n); err != nil {
		t.Fatal(err)
	}
}
