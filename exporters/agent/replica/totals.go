package replica

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
)

// Labels name one replica of a volume. Replica is the control address by which
// engines name it, the same on both nodes; it is empty for the volume itself.
type Labels struct {
	Volume, Replica, Backend string
}

// LatencyLabels name one histogram.
type LatencyLabels struct {
	Labels
	View bpf.View
	Op   string
}

type latencyTotal struct {
	bpf.Latency
	Created time.Time
}

// ViewLabels are the labels of one side's view of a replica.
type ViewLabels struct {
	Labels
	View bpf.View
}

// Totals are counts by label.
type Totals struct {
	Latencies  map[LatencyLabels]*latencyTotal
	acks       map[Labels]bpf.Acks
	Unanswered map[ViewLabels]uint64
}

// NewTotals returns totals of nothing.
func NewTotals() *Totals {
	return &Totals{
		Latencies:  map[LatencyLabels]*latencyTotal{},
		acks:       map[Labels]bpf.Acks{},
		Unanswered: map[ViewLabels]uint64{},
	}
}

// Copy returns a copy that shares nothing.
func (t *Totals) Copy() *Totals {
	n := NewTotals()
	for k, v := range t.Latencies {
		sum := *v
		n.Latencies[k] = &sum
	}
	for k, v := range t.acks {
		n.acks[k] = v
	}
	for k, v := range t.Unanswered {
		n.Unanswered[k] = v
	}
	return n
}

// AddLatency adds to the latencies of one operation in one view.
func (t *Totals) AddLatency(labels LatencyLabels, l *bpf.Latency, now time.Time) {
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

func (t *Totals) addAcks(labels Labels, a bpf.Acks) {
	sum := t.acks[labels]
	sum.Last += a.Last
	sum.WaitNs += a.WaitNs
	t.acks[labels] = sum
}

// Forget removes the totals of replicas that the function names.
func (t *Totals) Forget(labels Labels) {
	for k := range t.Latencies {
		if k.Labels == labels {
			delete(t.Latencies, k)
		}
	}
	delete(t.acks, labels)
	for view := range Views {
		delete(t.Unanswered, ViewLabels{labels, view})
	}
}

// OperationsSeen counts the operations in all histograms, also in those that are forgotten by now.
type OperationsSeen struct{ shown, Total uint64 }

// Add takes what the histograms have now. A histogram that is gone took its share of shown along.
func (o *OperationsSeen) Add(latencies map[LatencyLabels]*latencyTotal) {
	now := uint64(0)
	for _, l := range latencies {
		for _, n := range l.Slots {
			now += n
		}
	}
	if now > o.shown {
		o.Total += now - o.shown
	}
	o.shown = now
}

// peerNames returns the address of each peer number.
func (f *replicaFollower) peerNames() (map[uint32]bpf.PeerKey, error) {
	keys, err := readReplicaMap[bpf.PeerKey, uint32](f.kernel, "peers")
	if err != nil {
		return nil, err
	}
	names := make(map[uint32]bpf.PeerKey, len(keys))
	for key, number := range keys {
		names[number] = key
	}
	return names, nil
}

// labels names a peer of a followed process.
func (f *replicaFollower) labels(n *followedProcess, view bpf.View, peer uint32, peers map[uint32]bpf.PeerKey) Labels {
	l := Labels{Volume: n.volume, Backend: n.Backend}
	if view == bpf.ViewFrontend {
		return l
	}
	l.Replica = "other"
	if key, ok := peers[peer]; ok {
		l.Replica = f.address(n, key)
	}
	if _, known := f.lastSeen[l]; !known && len(f.lastSeen) >= maxSeries {
		if !f.overflowed[peer] && len(f.overflowed) < maxSeries {
			f.overflowed[peer] = true
			f.overflow++
		}
		l.Replica = "other"
	}
	return l
}

// address names a replica by a process's other end, or by its own.
func (f *replicaFollower) address(n *followedProcess, key bpf.PeerKey) string {
	if key.Family == bpf.Unix {
		return f.localReplica(n)
	}
	return f.wire.control(peerAddress(key)).String()
}

// replicaOf names the replica of an event; empty if its process is not followed any more, or no sweep has seen its
// connection yet.
func (f *replicaFollower) replicaOf(process, peer uint32) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.bySlot[process]
	key, known := f.peers[peer]
	if n == nil || !known {
		return ""
	}
	return f.address(n, key)
}

// localReplica names the one replica of a volume whose data stays on the engine's node and
// on a unix socket: by the address the engine was given, which the replica, listening on
// all addresses, does not know.
func (f *replicaFollower) localReplica(n *followedProcess) string {
	for _, e := range f.byPID {
		if e.Role == bpf.Engine && e.Volume == n.Volume && len(e.Replicas) == 1 {
			return e.Replicas[0]
		}
	}
	if n.Role == bpf.Replica && n.Host != "" {
		return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
	return "local"
}

// replicaLive are the counts of the processes that are followed now.
type replicaLive struct {
	latencies map[bpf.LatencyKey]bpf.Latency
	acks      map[bpf.AckKey]bpf.Acks
}

func (f *replicaFollower) live() (l replicaLive, peers map[uint32]bpf.PeerKey, err error) {
	if l.latencies, err = readReplicaMap[bpf.LatencyKey, bpf.Latency](f.kernel, "latencies"); err != nil {
		return l, nil, err
	}
	if l.acks, err = readReplicaMap[bpf.AckKey, bpf.Acks](f.kernel, "last_acks"); err != nil {
		return l, nil, err
	}
	peers, err = f.peerNames()
	return l, peers, err
}

// sum returns all counts by label: of what is gone and of what is there.
func (f *replicaFollower) sum() (*Totals, error) {
	live, peers, err := f.live()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	name := func(key bpf.LatencyKey) (LatencyLabels, bool) {
		n := f.bySlot[key.Slot]
		if n == nil {
			return LatencyLabels{}, false
		}
		view := bpf.View(key.View)
		return LatencyLabels{f.labels(n, view, key.Peer, peers), view, bpf.Ops[key.Op]}, true
	}
	// A histogram keeps the time it was first seen at.
	for key := range live.latencies {
		if labels, ok := name(key); ok {
			f.totals.AddLatency(labels, &bpf.Latency{}, now)
			if _, ok := f.lastSeen[labels.Labels]; !ok {
				f.lastSeen[labels.Labels] = now
			}
		}
	}
	t := f.totals.Copy()
	for key, l := range live.latencies {
		if labels, ok := name(key); ok {
			t.AddLatency(labels, &l, now)
		}
	}
	for key, a := range live.acks {
		if n := f.bySlot[key.Slot]; n != nil {
			t.addAcks(f.labels(n, bpf.ViewRequest, key.Peer, peers), a)
		}
	}
	return t, nil
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
