// Package operation holds what the collectors of storage wires share: the metrics of operations, labels and totals.
package operation

import (
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
)

const (
	// MaxVolumes bounds the values of the label volume; more are counted as "other".
	MaxVolumes = 512
	// Retention is how long the series of a replica without a connection, or of a
	// volume without a process, stay: long enough for the last values to be scraped.
	Retention = 10 * time.Minute
)

// Ops are the values of the label op, by their number in enum wire_op (bpf/operation.h).
var Ops = [...]string{"read", "write", "unmap", "sync", "ping", "other"}

// View is from where an operation is seen. The kernel side of replicas has the first three, as enum view (track.h).
type View = bpf.DataconnView

const (
	// ViewRequest is the engine's: request sent to response read.
	ViewRequest = bpf.DataconnViewVIEW_REQUEST
	// ViewService is the replica's: request read to response written.
	ViewService = bpf.DataconnViewVIEW_SERVICE
	// ViewFrontend is the engine's towards its user: request read to response written.
	ViewFrontend = bpf.DataconnViewVIEW_FRONTEND
	// ViewPath is the initiator's view of a volume's target, on one path.
	ViewPath = View(100)
	// ViewTarget is the view of a target in user space. Rules take an engine's own view, the frontend, for what an
	// engine does: that may be another process behind this one, and with some engines (Mayastor) a replica's target
	// cannot be distinguished from a volume's.
	ViewTarget = View(101)
)

// Labels name one replica of a volume. Replica is the control address by which
// engines name it, the same on both nodes; it is empty for the volume itself.
type Labels struct {
	Volume, Replica, Backend string
}

// Values are the label values for one view: the frontend is no replica's.
func (l Labels) Values(view View, more ...string) []string {
	if view == ViewFrontend || view == ViewTarget {
		return append([]string{l.Volume, l.Backend}, more...)
	}
	return append([]string{l.Volume, l.Replica, l.Backend}, more...)
}

// ViewLabels are the labels of one side's view of a replica.
type ViewLabels struct {
	Labels
	View View
}

// LatencyLabels name one histogram.
type LatencyLabels struct {
	Labels
	View View
	Op   string
}

// Latency is a histogram with its sum, bytes and failures: struct latency (bpf/operation.h) of all wires' maps.
type Latency = bpf.DataconnLatency

type latencyTotal struct {
	Latency
	Created time.Time
}

// Totals are counts by label.
type Totals struct {
	Latencies  map[LatencyLabels]*latencyTotal
	Unanswered map[ViewLabels]uint64
}

// NewTotals returns totals of nothing.
func NewTotals() *Totals { return &Totals{map[LatencyLabels]*latencyTotal{}, map[ViewLabels]uint64{}} }

// Copy returns a copy that shares nothing.
func (t *Totals) Copy() *Totals {
	n := &Totals{map[LatencyLabels]*latencyTotal{}, maps.Clone(t.Unanswered)}
	for k, v := range t.Latencies {
		sum := *v
		n.Latencies[k] = &sum
	}
	return n
}

// AddLatency adds to the latencies of one operation in one view.
func (t *Totals) AddLatency(labels LatencyLabels, l *Latency, now time.Time) {
	sum := t.Latencies[labels]
	if sum == nil {
		sum = &latencyTotal{Created: now}
		t.Latencies[labels] = sum
	}
	for i, n := range l.Slots {
		sum.Slots[i] += n
	}
	sum.SumNs += l.SumNs
	sum.Bytes += l.Bytes
	sum.Failed += l.Failed
}

// Forget removes the totals under these labels.
func (t *Totals) Forget(labels Labels) {
	maps.DeleteFunc(t.Latencies, func(l LatencyLabels, _ *latencyTotal) bool { return l.Labels == labels })
	maps.DeleteFunc(t.Unanswered, func(l ViewLabels, _ uint64) bool { return l.Labels == labels })
}

// Seen counts the operations in all histograms, also in those that are forgotten by now.
type Seen struct{ shown, Total uint64 }

// Add takes what the histograms have now. A histogram that is gone took its share of shown along.
func (s *Seen) Add(latencies map[LatencyLabels]*latencyTotal) {
	now := uint64(0)
	for _, l := range latencies {
		for _, n := range l.Slots {
			now += n
		}
	}
	if now > s.shown {
		s.Total += now - s.shown
	}
	s.shown = now
}

// Send sends the counts of operations, and of those with these names the bytes, too. The error reports a histogram that
// cannot be made; the others are sent all the same.
func (t *Totals) Send(send func(prometheus.Metric), withBytes ...string) error {
	var errs []error
	for labels, l := range t.Latencies {
		d := Views[labels.View]
		values := labels.Values(labels.View, labels.Op)
		h, err := nativehist.New(d.duration, l.Slots[:], float64(l.SumNs)/1e9, l.Created, values...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		send(h)
		send(collector.Counter(d.errors, float64(l.Failed), values...))
		if slices.Contains(withBytes, labels.Op) {
			send(collector.Counter(d.bytes, float64(l.Bytes), values...))
		}
	}
	for labels, n := range t.Unanswered {
		send(collector.Counter(Views[labels.View].unanswered, float64(n), labels.Values(labels.View)...))
	}
	return errors.Join(errs...)
}

// Gauges are what is going on at this moment, by label.
type Gauges struct {
	Connections, Inflight map[ViewLabels]int
	// Oldest is the age of the oldest operation without an answer, in seconds.
	Oldest map[ViewLabels]float64
}

// NewGauges returns gauges of nothing.
func NewGauges() Gauges {
	return Gauges{map[ViewLabels]int{}, map[ViewLabels]int{}, map[ViewLabels]float64{}}
}
