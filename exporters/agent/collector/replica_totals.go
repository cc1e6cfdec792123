package collector

import (
	"errors"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
)

// replicaLabels name one replica of a volume. Replica is the control address by which
// engines name it, the same on both nodes; it is empty for the volume itself.
type replicaLabels struct {
	Volume, Replica, Backend string
}

// latencyLabels name one histogram.
type latencyLabels struct {
	replicaLabels
	View replica.View
	Op   string
}

type latencyTotal struct {
	replica.Latency
	created time.Time
}

type viewLabels struct {
	replicaLabels
	View replica.View
}

// replicaTotals are counts by label.
type replicaTotals struct {
	latencies  map[latencyLabels]*latencyTotal
	acks       map[replicaLabels]replica.Acks
	unanswered map[viewLabels]uint64
}

func newReplicaTotals() *replicaTotals {
	return &replicaTotals{
		latencies:  map[latencyLabels]*latencyTotal{},
		acks:       map[replicaLabels]replica.Acks{},
		unanswered: map[viewLabels]uint64{},
	}
}

func (t *replicaTotals) copy() *replicaTotals {
	n := newReplicaTotals()
	for k, v := range t.latencies {
		sum := *v
		n.latencies[k] = &sum
	}
	for k, v := range t.acks {
		n.acks[k] = v
	}
	for k, v := range t.unanswered {
		n.unanswered[k] = v
	}
	return n
}

func (t *replicaTotals) addLatency(labels latencyLabels, l *replica.Latency, now time.Time) {
	sum := t.latencies[labels]
	if sum == nil {
		sum = &latencyTotal{created: now}
		t.latencies[labels] = sum
	}
	for i, n := range l.Slots {
		sum.Slots[i] += n
	}
	sum.SumNs += l.SumNs
	sum.Bytes += l.Bytes
	sum.Failed += l.Failed
}

func (t *replicaTotals) addAcks(labels replicaLabels, a replica.Acks) {
	sum := t.acks[labels]
	sum.Last += a.Last
	sum.WaitNs += a.WaitNs
	t.acks[labels] = sum
}

func (t *replicaTotals) forget(labels replicaLabels) {
	for k := range t.latencies {
		if k.replicaLabels == labels {
			delete(t.latencies, k)
		}
	}
	delete(t.acks, labels)
	for view := range replicaViews {
		delete(t.unanswered, viewLabels{labels, view})
	}
}

// operationsSeen counts the operations in all histograms, also in those that are forgotten by now.
type operationsSeen struct{ shown, total uint64 }

// add takes what the histograms have now. A histogram that is gone took its share of shown along.
func (o *operationsSeen) add(latencies map[latencyLabels]*latencyTotal) {
	now := uint64(0)
	for _, l := range latencies {
		for _, n := range l.Slots {
			now += n
		}
	}
	if now > o.shown {
		o.total += now - o.shown
	}
	o.shown = now
}

// peerNames returns the address of each peer number.
func (f *replicaFollower) peerNames() (map[uint32]replica.PeerKey, error) {
	keys, err := readReplicaMap[replica.PeerKey, uint32](f.kernel, "peers")
	if err != nil {
		return nil, err
	}
	names := make(map[uint32]replica.PeerKey, len(keys))
	for key, number := range keys {
		names[number] = key
	}
	return names, nil
}

// labels names a peer of a followed process.
func (f *replicaFollower) labels(n *followedProcess, view replica.View, peer uint32, peers map[uint32]replica.PeerKey) replicaLabels {
	l := replicaLabels{Volume: n.volume, Backend: n.Backend}
	if view == replica.ViewFrontend {
		return l
	}
	l.Replica = "other"
	if key, ok := peers[peer]; ok {
		l.Replica = f.address(n, key)
	}
	if _, known := f.lastSeen[l]; !known && len(f.lastSeen) >= replicaMaxSeries {
		if !f.crowded[peer] && len(f.crowded) < replicaMaxSeries {
			f.crowded[peer] = true
			f.overflow++
		}
		l.Replica = "other"
	}
	return l
}

// address names a replica by a process's other end, or by its own.
func (f *replicaFollower) address(n *followedProcess, key replica.PeerKey) string {
	if key.Family == replica.Unix {
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
		if e.Role == replica.Engine && e.Volume == n.Volume && len(e.Replicas) == 1 {
			return e.Replicas[0]
		}
	}
	if n.Role == replica.Replica && n.Host != "" {
		return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
	return "local"
}

// replicaLive are the counts of the processes that are followed now.
type replicaLive struct {
	latencies map[replica.LatencyKey]replica.Latency
	acks      map[replica.AckKey]replica.Acks
}

func (f *replicaFollower) live() (l replicaLive, peers map[uint32]replica.PeerKey, err error) {
	if l.latencies, err = readReplicaMap[replica.LatencyKey, replica.Latency](f.kernel, "latencies"); err != nil {
		return l, nil, err
	}
	if l.acks, err = readReplicaMap[replica.AckKey, replica.Acks](f.kernel, "last_acks"); err != nil {
		return l, nil, err
	}
	peers, err = f.peerNames()
	return l, peers, err
}

// sum returns all counts by label: of what is gone and of what is there.
func (f *replicaFollower) sum() (*replicaTotals, error) {
	live, peers, err := f.live()
	if err != nil {
		return nil, err
	}
	now := time.Now()
	name := func(key replica.LatencyKey) (latencyLabels, bool) {
		n := f.bySlot[key.Slot]
		if n == nil {
			return latencyLabels{}, false
		}
		view := replica.View(key.View)
		return latencyLabels{f.labels(n, view, key.Peer, peers), view, replica.Ops[key.Op]}, true
	}
	// A histogram keeps the time it was first seen at.
	for key := range live.latencies {
		if labels, ok := name(key); ok {
			f.totals.addLatency(labels, &replica.Latency{}, now)
			if _, ok := f.lastSeen[labels.replicaLabels]; !ok {
				f.lastSeen[labels.replicaLabels] = now
			}
		}
	}
	t := f.totals.copy()
	for key, l := range live.latencies {
		if labels, ok := name(key); ok {
			t.addLatency(labels, &l, now)
		}
	}
	for key, a := range live.acks {
		if n := f.bySlot[key.Slot]; n != nil {
			t.addAcks(f.labels(n, replica.ViewRequest, key.Peer, peers), a)
		}
	}
	return t, nil
}

// send sends the counts of operations, and of those with these names the bytes, too. The error reports a histogram that
// cannot be made; the others are sent all the same.
func (t *replicaTotals) send(send func(prometheus.Metric), withBytes ...string) error {
	var errs []error
	for labels, l := range t.latencies {
		d := replicaViews[labels.View]
		values := labels.values(labels.View, labels.Op)
		h, err := nativehist.New(d.duration, l.Slots[:], float64(l.SumNs)/1e9, l.created, values...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		send(h)
		send(counter(d.errors, float64(l.Failed), values...))
		if slices.Contains(withBytes, labels.Op) {
			send(counter(d.bytes, float64(l.Bytes), values...))
		}
	}
	for labels, n := range t.unanswered {
		send(counter(replicaViews[labels.View].unanswered, float64(n), labels.values(labels.View)...))
	}
	return errors.Join(errs...)
}
