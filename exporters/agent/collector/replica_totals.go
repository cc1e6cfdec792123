package collector

import (
	"errors"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
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
	for i, n := range l.Classic {
		sum.Classic[i] += n
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

// replicaNow is what is going on at this moment.
type replicaNow struct {
	peers       map[uint32]replica.PeerKey
	connections map[viewLabels]int
	inflight    map[viewLabels]int
	// oldest is the age of the oldest request without an answer, in seconds.
	oldest map[viewLabels]float64
}

type viewLabels struct {
	replicaLabels
	View replica.View
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
	key, ok := peers[peer]
	switch {
	case !ok:
		l.Replica = "other"
	case key.Family == replica.Unix:
		l.Replica = f.localReplica(n)
	default:
		l.Replica = f.wire.control(peerAddress(key)).String()
	}
	return l
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

// sweep frees what closed connections and gone peers have left in the kernel's maps, and
// returns what is left. The order of the copies matters: an operation in the first has its
// connection in the second, unless that was renumbered or closed in between.
func (f *replicaFollower) sweep(now time.Time) (*replicaNow, error) {
	inflight, err := readReplicaMap[replica.OperationKey, replica.Operation](f.kernel, "inflight")
	if err != nil {
		return nil, err
	}
	connections, err := readReplicaMap[uint64, replica.Connection](f.kernel, "connections")
	if err != nil {
		return nil, err
	}
	peers, err := f.peerNames()
	if err != nil {
		return nil, err
	}
	result := &replicaNow{
		peers:       peers,
		connections: map[viewLabels]int{},
		inflight:    map[viewLabels]int{},
		oldest:      map[viewLabels]float64{},
	}
	var errs []error
	sockets := map[uint32]map[uint64]bool{}
	for slot, n := range f.bySlot {
		if sockets[slot], err = openSockets(f.options.ProcFS, n.pid); err != nil {
			delete(sockets, slot) // ended, or not ours to see: its connections stay
		}
	}
	alive := map[uint32]bool{}  // connection numbers
	closed := map[uint32]bool{} // of these, without a socket now
	used := map[uint32]bool{}   // peer numbers
	enginePeers := map[uint32]map[uint32]bool{}
	for inode, c := range connections {
		n := f.bySlot[c.Slot]
		open, known := sockets[c.Slot]
		if n == nil || known && !open[inode] {
			closed[c.Id] = true
			_, err := f.kernel.deleteFrom("connections", inode)
			errs = append(errs, err)
			continue
		}
		alive[c.Id] = true
		used[c.Peer] = true
		view := replica.View(c.View)
		if view == replica.ViewRequest {
			if enginePeers[c.Slot] == nil {
				enginePeers[c.Slot] = map[uint32]bool{}
			}
			enginePeers[c.Slot][c.Peer] = true
		}
		l := viewLabels{f.labels(n, view, c.Peer, peers), view}
		result.connections[l]++
		f.lastSeen[l.replicaLabels] = now
	}
	clock := monotonic()
	for key, o := range inflight {
		n := f.bySlot[o.Slot]
		if n == nil { // the last words of a process that is followed no more
			_, err := f.kernel.deleteFrom("inflight", key)
			errs = append(errs, err)
			continue
		}
		l := viewLabels{f.labels(n, replica.View(o.View), o.Peer, peers), replica.View(o.View)}
		if alive[key.Connection] {
			result.inflight[l]++
			result.oldest[l] = max(result.oldest[l], float64(int64(clock-o.Start))/1e9)
			continue
		}
		was, err := f.kernel.deleteFrom("inflight", key)
		errs = append(errs, err)
		switch {
		case !was:
		case closed[key.Connection]:
			f.totals.unanswered[l]++
		default:
			f.resynced++
		}
	}
	for slot, n := range f.bySlot {
		f.lastSeen[replicaLabels{Volume: n.volume, Backend: n.Backend}] = now
		if !n.UnseenFrontend || n.peers == uint32(len(enginePeers[slot])) {
			continue
		}
		n.peers = uint32(len(enginePeers[slot]))
		errs = append(errs, f.kernel.setPeers(n.pid, n.peers))
	}
	errs = append(errs, f.expireWrites(clock), f.expirePeers(now, peers, used), f.expireTotals(now))
	return result, errors.Join(errs...)
}

// expireWrites frees writes whose end was never seen, such as those of a failed engine
// connection.
func (f *replicaFollower) expireWrites(clock uint64) error {
	writes, err := readReplicaMap[replica.WriteKey, replica.Write](f.kernel, "writes")
	if err != nil {
		return err
	}
	var errs []error
	for key, w := range writes {
		if f.bySlot[key.Slot] != nil && int64(clock-w.Start) < int64(replicaRetention) {
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
func (f *replicaFollower) expirePeers(now time.Time, peers map[uint32]replica.PeerKey, used map[uint32]bool) error {
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
		if !known || now.Sub(since) < replicaRetention {
			continue
		}
		delete(f.idle, number)
		for view := range replica.ViewFrontend {
			for op := range replica.Ops {
				_, err := f.kernel.deleteFrom("latencies", replica.LatencyKey{Slot: key.Slot, Peer: number, View: uint8(view), Op: uint8(op)})
				errs = append(errs, err)
			}
		}
		_, err := f.kernel.deleteFrom("last_acks", replica.AckKey{Slot: key.Slot, Peer: number})
		errs = append(errs, err)
		_, err = f.kernel.deleteFrom("peers", key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// expireTotals forgets the counts of replicas and volumes that are gone for long.
func (f *replicaFollower) expireTotals(now time.Time) error {
	for labels, seen := range f.lastSeen {
		if now.Sub(seen) < replicaRetention {
			continue
		}
		delete(f.lastSeen, labels)
		f.totals.forget(labels)
		if labels.Replica == "" {
			delete(f.volumes, labels.Volume)
		}
	}
	return nil
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
			view := replica.View(key.View)
			f.totals.addLatency(latencyLabels{f.labels(n, view, key.Peer, peers), view, replica.Ops[key.Op]}, &l, now)
			remove("latencies", key)
		}
	}
	for key, a := range live.acks {
		if key.Slot == n.slot {
			f.totals.addAcks(f.labels(n, replica.ViewRequest, key.Peer, peers), a)
			remove("last_acks", key)
		}
	}
	connections, err := readReplicaMap[uint64, replica.Connection](f.kernel, "connections")
	errs = append(errs, err)
	for inode, c := range connections {
		if c.Slot == n.slot {
			remove("connections", inode)
		}
	}
	inflight, err := readReplicaMap[replica.OperationKey, replica.Operation](f.kernel, "inflight")
	errs = append(errs, err)
	for key, o := range inflight {
		if o.Slot == n.slot && remove("inflight", key) {
			view := replica.View(o.View)
			f.totals.unanswered[viewLabels{f.labels(n, view, o.Peer, peers), view}]++
		}
	}
	writes, err := readReplicaMap[replica.WriteKey, replica.Write](f.kernel, "writes")
	errs = append(errs, err)
	for key := range writes {
		if key.Slot == n.slot {
			remove("writes", key)
		}
	}
	for number, key := range peers {
		if key.Slot == n.slot {
			f.lastSeen[f.labels(n, replica.ViewRequest, number, peers)] = now
			delete(f.idle, number)
			remove("peers", key)
		}
	}
	return errors.Join(errs...)
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

// monotonic is the kernel's clock of the programs' times.
func monotonic() uint64 {
	var t unix.Timespec
	// It cannot fail for this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}
