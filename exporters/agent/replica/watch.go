package replica

import (
	"context"
	"errors"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
)

// sampleInterval is how often the sockets of all followed processes are sampled.
const sampleInterval = time.Second

func (f *replicaFollower) watch(ctx context.Context) {
	failed := false
	collector.Every(ctx, f.log, sampleInterval, nil, func() {
		err := f.sample()
		if err != nil && !failed {
			f.log.Warn("sampling the sockets of engines and replicas", "err", err)
		}
		failed = err != nil
	})
}

// sample notes what lies unread in the followed processes' sockets and which processes are stopped, and frees what
// closed connections and gone peers have left behind. It queries the kernel without the lock: a scrape never waits for
// it.
func (f *replicaFollower) sample() error {
	f.sampling.Lock()
	defer f.sampling.Unlock()
	f.sampleThreads()
	f.mu.Lock()
	pids := make([]int, 0, len(f.byPID))
	for pid := range f.byPID {
		pids = append(pids, pid)
	}
	f.mu.Unlock()
	before := f.clock()
	// In this order: what has a connection here has its socket in the second.
	connections, err := readReplicaMap[uint64, bpf.Connection](f.kernel, "connections")
	if err != nil {
		return f.sampleFailed(err)
	}
	states, err := f.kernel.sockets(pids)
	if err != nil {
		return f.sampleFailed(err)
	}
	after := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	open := f.updateSockets(states, connections, before, after)
	var errs []error
	for inode, c := range connections {
		// Of a process without any socket nothing is known: it may be about to end.
		if all := open[c.Slot]; all == nil || all[inode] {
			continue
		}
		_, err := f.kernel.deleteFrom("connections", inode)
		f.closed[c.Id] = true
		errs = append(errs, err)
	}
	_, err = f.sweep(time.Now(), true)
	// Whatever was under way on them has been counted.
	clear(f.closed)
	return errors.Join(append(errs, err)...)
}

func (f *replicaFollower) sampleFailed(err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.sampleErrors++
	return err
}

// updateSockets updates the watched sockets and returns those that are open, by process.
func (f *replicaFollower) updateSockets(states []bpf.SocketState, connections map[uint64]bpf.Connection, before, after uint64) map[uint32]map[uint64]bool {
	open := map[uint32]map[uint64]bool{}
	watched := make(map[uint64]*watchedSocket, len(f.sockets))
	for i := range states {
		s := &states[i]
		n := f.bySlot[s.Slot]
		if n == nil {
			continue
		}
		if open[s.Slot] == nil {
			open[s.Slot] = map[uint64]bool{}
			n.stopped.sample(s, before, after)
		}
		open[s.Slot][s.Inode] = true
		var c *bpf.Connection
		if tracked, ok := connections[s.Inode]; ok && tracked.Slot == s.Slot {
			c = &tracked
		}
		view, data := f.dataSocket(n, s, c)
		if !data || s.Flags&uint8(bpf.SocketPeerGone) != 0 {
			// Nobody waits any more for what lies there. What is under way keeps its age.
			if c == nil {
				continue
			}
			if view != operation.ViewRequest {
				s.Unread = 0
			}
		}
		w := f.sockets[s.Inode]
		if w == nil || w.slot != s.Slot {
			if len(watched) >= maxSockets {
				f.unwatched++
				continue
			}
			w = &watchedSocket{slot: s.Slot, tcp: s.Flags&uint8(bpf.SocketTCP) != 0}
		}
		w.view = view
		if c != nil {
			w.peer = c.Peer
		}
		w.sample(s, c, before, after, n.stopped.since != 0)
		watched[s.Inode] = w
		// An engine that has given a replica up may keep its dead connection and never read
		// from it again.
		dead := view == operation.ViewRequest && s.Flags&uint8(bpf.SocketPeerGone) != 0
		if dead && (s.Unread == 0 || n.stopped.since == 0 && w.age > uint64(missedFor)) {
			delete(open[s.Slot], s.Inode)
		}
	}
	f.sockets = watched
	return open
}

// dataSocket reports whether operations come or go on a socket, and in which view.
func (f *replicaFollower) dataSocket(n *followedProcess, s *bpf.SocketState, c *bpf.Connection) (operation.View, bool) {
	if c != nil {
		return operation.View(c.View), true
	}
	has := func(flag bpf.SocketFlag) bool { return s.Flags&uint8(flag) != 0 }
	switch {
	case has(bpf.SocketListens):
		return 0, false
	case n.Role == bpf.Engine:
		// An engine serves one unix socket, its frontend.
		return operation.ViewFrontend, !n.UnseenFrontend && has(bpf.SocketUnix) && has(bpf.SocketServed)
	case n.Unix:
		return operation.ViewService, has(bpf.SocketUnix) && has(bpf.SocketServed)
	}
	return operation.ViewService, has(bpf.SocketTCP) && s.Port == f.wire.dataPort(n.Port)
}

// stall is what is stalled in one view of a volume or replica.
type stall struct {
	oldest float64 // seconds
	unread float64 // bytes
}

// stalls returns, by label, the bytes that lie unread and for how long. The views of processes
// that are there but have nothing to do are in it, with zeros.
func (f *replicaFollower) stalls(peers map[uint32]bpf.PeerKey) map[operation.ViewLabels]stall {
	all := map[operation.ViewLabels]stall{}
	for _, n := range f.bySlot {
		if l, ok := f.ownLabels(n, peers); ok {
			all[l] = stall{}
		}
	}
	for _, w := range f.sockets {
		n := f.bySlot[w.slot]
		if n == nil || w.view == operation.ViewRequest {
			continue
		}
		l, ok := f.ownLabels(n, peers)
		if w.connection != 0 {
			l, ok = operation.ViewLabels{Labels: f.labels(n, w.view, w.peer, peers), View: w.view}, true
		}
		if !ok {
			l = operation.ViewLabels{Labels: operation.Labels{Volume: n.volume, Replica: "other", Backend: n.Backend}, View: w.view}
		}
		s := all[l]
		s.unread += float64(w.unread)
		s.oldest = max(s.oldest, float64(w.age)/1e9)
		all[l] = s
	}
	return all
}

// ownLabels are those of what a process serves: an engine its volume's user, a replica its
// engine. A replica's address may not be known yet.
func (f *replicaFollower) ownLabels(n *followedProcess, peers map[uint32]bpf.PeerKey) (operation.ViewLabels, bool) {
	l := operation.ViewLabels{Labels: operation.Labels{Volume: n.volume, Backend: n.Backend}, View: operation.ViewFrontend}
	if n.Role == bpf.Replica {
		l.Replica, l.View = f.ownAddress(n, peers), operation.ViewService
	}
	return l, n.Role == bpf.Engine && !n.UnseenFrontend || l.Replica != ""
}

// heldByEngine reports whether it is the engine that makes a request old, not the replica: an answer has arrived that
// it does not read, or it has sent a part of the request and does not go on.
func (f *replicaFollower) heldByEngine(inode, request uint64) bool {
	w := f.sockets[inode]
	return w != nil && w.view == operation.ViewRequest && (w.unread > 0 && w.age > 0 || w.halfway && w.half == request)
}
