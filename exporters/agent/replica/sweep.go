package replica

import (
	"errors"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation"
)

// replicaGauges are what is going on at this moment.
type replicaGauges struct {
	operation.Gauges
	peers map[uint32]bpf.PeerKey
	// stalls is what lies unread, by what the latest sample found.
	stalls map[operation.ViewLabels]stall
}

// sweep frees what broken connections and gone peers have left in the kernel's maps, and returns what is left. It reads
// only these maps. sampled is true if a sample has just left its view of the sockets: only samples let doubts grow. The
// order of the copies matters: an operation in the first has its connection in the second, unless that was renumbered
// or closed in between.
func (f *replicaFollower) sweep(now time.Time, sampled bool) (*replicaGauges, error) {
	inflight, err := readReplicaMap[bpf.OperationKey, bpf.Operation](f.kernel, "inflight")
	if err != nil {
		return nil, err
	}
	connections, err := readReplicaMap[uint64, bpf.Connection](f.kernel, "connections")
	if err != nil {
		return nil, err
	}
	peers, err := f.peerNames()
	if err != nil {
		return nil, err
	}
	f.peers = peers
	result := &replicaGauges{Gauges: operation.NewGauges(), peers: peers}
	clock := f.clock()
	if sampled {
		f.doubtAnswers(inflight, connections, clock)
	}
	seen, err := f.sweepConnections(connections, result, now)
	err = errors.Join(err,
		f.sweepInflight(inflight, seen, result, clock),
		f.countPeers(seen, now),
		f.expireWrites(inflight, clock),
		f.expirePeers(now, peers, seen.peers))
	f.expireTotals(now)
	result.stalls = f.stalls(peers)
	return result, err
}

// sweptConnections are the connections a sweep met, by number.
type sweptConnections struct {
	alive map[uint32]uint64 // to the socket's inode number
	// closed have no socket any more, or a broken one.
	closed map[uint32]bool
	// peers are the numbers of peers with a connection.
	peers map[uint32]bool
	// replicas are the peers of each engine, by its slot.
	replicas map[uint32]map[uint32]bool
}

// sweepConnections forgets the broken connections and counts the others. Those that are closed
// a sample finds.
func (f *replicaFollower) sweepConnections(connections map[uint64]bpf.Connection, result *replicaGauges, now time.Time) (sweptConnections, error) {
	seen := sweptConnections{map[uint32]uint64{}, map[uint32]bool{}, map[uint32]bool{}, map[uint32]map[uint32]bool{}}
	var errs []error
	for inode, c := range connections {
		n := f.bySlot[c.Slot]
		if n == nil || c.Ended != 0 {
			seen.closed[c.Id] = true
			_, err := f.kernel.deleteFrom("connections", inode)
			errs = append(errs, err)
			continue
		}
		seen.alive[c.Id] = inode
		seen.peers[c.Peer] = true
		view := operation.View(c.View)
		if view == operation.ViewRequest {
			if seen.replicas[c.Slot] == nil {
				seen.replicas[c.Slot] = map[uint32]bool{}
			}
			seen.replicas[c.Slot][c.Peer] = true
		}
		l := operation.ViewLabels{Labels: f.labels(n, view, c.Peer, result.peers), View: view}
		result.Connections[l]++
		f.lastSeen[l.Labels] = now
	}
	return seen, errors.Join(errs...)
}

// sweepInflight counts the operations under way and frees those that will never end.
func (f *replicaFollower) sweepInflight(inflight map[bpf.OperationKey]bpf.Operation, seen sweptConnections, result *replicaGauges, clock uint64) error {
	var errs []error
	for key, o := range inflight {
		n := f.bySlot[o.Slot]
		if n == nil { // the last words of a process that is followed no more
			_, err := f.kernel.deleteFrom("inflight", key)
			errs = append(errs, err)
			continue
		}
		l := operation.ViewLabels{Labels: f.labels(n, operation.View(o.View), o.Peer, result.peers), View: operation.View(o.View)}
		inode, alive := seen.alive[key.Connection]
		w := f.sockets[inode]
		if w != nil && w.connection != key.Connection {
			w = nil
		}
		if alive && !f.answeredUnseen(key, &o, w) {
			result.Inflight[l]++
			if o.View != uint8(operation.ViewRequest) || !f.heldByEngine(inode, key.Id) {
				age := clock - min(clock, o.Start)
				result.Oldest[l] = max(result.Oldest[l], float64(age)/1e9)
				if age >= tracingLate {
					f.reportUnanswered(key.Id, &o, result.peers, clock)
				}
			}
			continue
		}
		was, err := f.kernel.deleteFrom("inflight", key)
		errs = append(errs, err)
		switch {
		case !was:
		case seen.closed[key.Connection], f.closed[key.Connection]:
			f.totals.Unanswered[l]++
			f.reportUnanswered(key.Id, &o, result.peers, clock)
		default:
			f.resynced++
		}
	}
	return errors.Join(errs...)
}

// countPeers passes to the kernel how many replicas an engine writes to, where only their number determines when a
// write is over.
func (f *replicaFollower) countPeers(seen sweptConnections, now time.Time) error {
	var errs []error
	for slot, n := range f.bySlot {
		f.lastSeen[operation.Labels{Volume: n.volume, Backend: n.Backend}] = now
		if !n.UnseenFrontend || n.peers == uint32(len(seen.replicas[slot])) {
			continue
		}
		n.peers = uint32(len(seen.replicas[slot]))
		errs = append(errs, f.kernel.setPeers(n.pid, n.peers))
	}
	return errors.Join(errs...)
}

// expireWrites frees writes whose end was never seen, such as those of a failed engine
// connection. One with an operation under way is not over, however long that takes.
func (f *replicaFollower) expireWrites(inflight map[bpf.OperationKey]bpf.Operation, clock uint64) error {
	writes, err := readReplicaMap[bpf.WriteKey, bpf.Write](f.kernel, "writes")
	if err != nil {
		return err
	}
	underWay := make(map[bpf.WriteKey]bool, len(inflight))
	for _, o := range inflight {
		underWay[bpf.WriteKey{Slot: o.Slot, Size: o.Size, Offset: o.Offset}] = true
	}
	var errs []error
	for key, w := range writes {
		if f.bySlot[key.Slot] != nil && (int64(clock-w.Start) < int64(operation.Retention) || underWay[key]) {
			continue
		}
		was, err := f.kernel.deleteFrom("writes", key)
		errs = append(errs, err)
		if was {
			f.expired++
		}
	}
	return errors.Join(errs...)
}

// expirePeers forgets replicas an engine has not been connected to for long.
func (f *replicaFollower) expirePeers(now time.Time, peers map[uint32]bpf.PeerKey, used map[uint32]bool) error {
	var errs []error
	for number, key := range peers {
		if used[number] {
			delete(f.idle, number)
			continue
		}
		since, known := f.idle[number]
		if !known {
			f.idle[number] = now
		}
		if !known || now.Sub(since) < operation.Retention {
			continue
		}
		delete(f.idle, number)
		delete(f.overflowed, number)
		for view := range operation.ViewFrontend {
			for op := range operation.Ops {
				_, err := f.kernel.deleteFrom("latencies", bpf.LatencyKey{Slot: key.Slot, Peer: number, View: uint8(view), Op: uint8(op)})
				errs = append(errs, err)
			}
		}
		_, err := f.kernel.deleteFrom("last_acks", bpf.AckKey{Slot: key.Slot, Peer: number})
		errs = append(errs, err)
		_, err = f.kernel.deleteFrom("peers", key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// expireTotals forgets the counts of replicas and volumes that are gone for long.
func (f *replicaFollower) expireTotals(now time.Time) {
	for labels, seen := range f.lastSeen {
		if now.Sub(seen) < operation.Retention {
			continue
		}
		delete(f.lastSeen, labels)
		f.totals.Forget(labels)
		delete(f.acks, labels)
		if labels.Replica == "" {
			delete(f.volumes, labels.Volume)
		}
	}
}

// retire takes a process that has ended out of the kernel's maps and keeps its counts.
func (f *replicaFollower) retire(n *followedProcess) error {
	live, peers, err := f.live()
	if err != nil {
		return err
	}
	now := time.Now()
	var errs []error
	remove := func(name string, key any) bool {
		was, err := f.kernel.deleteFrom(name, key)
		errs = append(errs, err)
		return was
	}
	for key, l := range live.latencies {
		if key.Slot == n.slot {
			view := operation.View(key.View)
			f.totals.AddLatency(operation.LatencyLabels{Labels: f.labels(n, view, key.Peer, peers), View: view, Op: operation.Ops[key.Op]}, &l, now)
			remove("latencies", key)
		}
	}
	for key, a := range live.acks {
		if key.Slot == n.slot {
			addAcks(f.acks, f.labels(n, operation.ViewRequest, key.Peer, peers), a)
			remove("last_acks", key)
		}
	}
	connections, err := readReplicaMap[uint64, bpf.Connection](f.kernel, "connections")
	errs = append(errs, err)
	for inode, c := range connections {
		if c.Slot == n.slot {
			remove("connections", inode)
		}
	}
	inflight, err := readReplicaMap[bpf.OperationKey, bpf.Operation](f.kernel, "inflight")
	errs = append(errs, err)
	for key, o := range inflight {
		if o.Slot == n.slot && remove("inflight", key) {
			view := operation.View(o.View)
			f.totals.Unanswered[operation.ViewLabels{Labels: f.labels(n, view, o.Peer, peers), View: view}]++
			f.reportUnanswered(key.Id, &o, peers, f.clock())
		}
	}
	writes, err := readReplicaMap[bpf.WriteKey, bpf.Write](f.kernel, "writes")
	errs = append(errs, err)
	for key := range writes {
		if key.Slot == n.slot {
			remove("writes", key)
		}
	}
	for number, key := range peers {
		if key.Slot == n.slot {
			f.lastSeen[f.labels(n, operation.ViewRequest, number, peers)] = now
			delete(f.idle, number)
			delete(f.overflowed, number)
			remove("peers", key)
		}
	}
	return errors.Join(errs...)
}
