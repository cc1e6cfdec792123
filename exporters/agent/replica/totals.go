package replica

import (
	"maps"
	"net"
	"strconv"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation"
)

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
func (f *replicaFollower) labels(n *followedProcess, view operation.View, peer uint32, peers map[uint32]bpf.PeerKey) operation.Labels {
	l := operation.Labels{Volume: n.volume, Backend: n.Backend}
	if view == operation.ViewFrontend {
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

func addAcks(acks map[operation.Labels]bpf.Acks, labels operation.Labels, a bpf.Acks) {
	sum := acks[labels]
	sum.Last += a.Last
	sum.WaitNs += a.WaitNs
	acks[labels] = sum
}

// sum returns all counts by label: of what is gone and of what is there.
func (f *replicaFollower) sum() (*operation.Totals, map[operation.Labels]bpf.Acks, error) {
	live, peers, err := f.live()
	if err != nil {
		return nil, nil, err
	}
	now := time.Now()
	name := func(key bpf.LatencyKey) (operation.LatencyLabels, bool) {
		n := f.bySlot[key.Slot]
		if n == nil {
			return operation.LatencyLabels{}, false
		}
		view := operation.View(key.View)
		return operation.LatencyLabels{Labels: f.labels(n, view, key.Peer, peers), View: view, Op: operation.Ops[key.Op]}, true
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
	t, acks := f.totals.Copy(), maps.Clone(f.acks)
	for key, l := range live.latencies {
		if labels, ok := name(key); ok {
			t.AddLatency(labels, &l, now)
		}
	}
	for key, a := range live.acks {
		if n := f.bySlot[key.Slot]; n != nil {
			addAcks(acks, f.labels(n, operation.ViewRequest, key.Peer, peers), a)
		}
	}
	return t, acks, nil
}
