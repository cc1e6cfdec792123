package replica

import (
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	tracebpf "github.com/plumbline/plumbline/exporters/agent/bpf/trace"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/testkit"
)

// reportsTo are the trace collector's maps, without the collector: nobody takes what is reported.
func reportsTo(t *testing.T) *collector.Tracing {
	t.Helper()
	testkit.NeedBPF(t)
	spec, err := tracebpf.LoadTrace()
	if err != nil {
		t.Fatal(err)
	}
	clear(spec.Programs)
	spec.Maps["trace_events"].MaxEntries = 1 << 20
	c, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	tracing := &collector.Tracing{}
	tracing.Share(c.Maps)
	return tracing
}

// The trace collector gets a request to a replica that has no answer: while it is under way, and when its connection is
// closed.
func TestTraceUnanswered(t *testing.T) {
	tracing := reportsTo(t)
	l, port := dataListener(t)
	m := startSelfTraced(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "silent"}, tracing)
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
	tracing.TakeUnanswered()
	begin := collector.Monotonic()
	write(4)
	sent := collector.Monotonic()
	reported := func(after uint64) (q trace.Event) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			all, _ := tracing.TakeUnanswered()
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
	q := reported(sent)
	if q.Kind != trace.KindOperation || q.ReasonOrView != uint8(operation.ViewRequest) || operation.Ops[q.Subtype] != "write" || q.Offset != 4<<12 || q.Size != 4096 ||
		q.RemotePort != port || q.Start < begin || q.Start > sent {
		t.Errorf("%+v, sent between %d and %d to port %d", q, begin, sent, port)
	}
	closed := collector.Monotonic()
	_ = client.Close()
	if again := reported(closed); again.Start != q.Start {
		t.Errorf("another request: %+v", again)
	}
	m.Eventually("it is counted", func(r operationtest.Reading) bool {
		return r.Value("plumbline_replica_request_unanswered_total", nil) == 1
	})
}

// What the programs on a storage wire could not report makes the statements of that time incomplete.
func TestTraceUnseen(t *testing.T) {
	tracing := reportsTo(t)
	m := startSelfTraced(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "full"}, tracing)
	f := m.collector.wires[0]
	// A slot that was given out, and one that was not.
	if !tracing.Followed(1) || tracing.Followed(2) {
		t.Errorf("the first process is followed: %v, a second one: %v", tracing.Followed(1), tracing.Followed(2))
	}
	before, err := tracing.Unseen()
	if err != nil {
		t.Fatal(err)
	}
	addEvent(t, f, bpf.EventLostRequest)
	if n, err := tracing.Unseen(); err != nil || n != before+1 {
		t.Errorf("%d, %v after %d and a lost request", n, err, before)
	}
	addEvent(t, f, bpf.EventLostSeries)
	if n, err := tracing.Unseen(); err != nil || n != before+1 {
		t.Errorf("%d, %v: a series that found no room is no operation", n, err)
	}
	m.stop()
	if tracing.Followed(1) {
		t.Error("a collector that has ended follows a process")
	}
	if n, err := tracing.Unseen(); n != 0 || err != nil {
		t.Errorf("%d, %v of a collector that has ended", n, err)
	}
}

// addEvent counts an event as the programs do.
func addEvent(t *testing.T, f *replicaFollower, e bpf.Event) {
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
