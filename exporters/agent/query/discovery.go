package query

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// rescanDelay is the pause before the second scan of a server that began just now; it
	// doubles until the server listens.
	rescanDelay = 50 * time.Millisecond
	// walkGap is the least time between two scans of all processes.
	walkGap = time.Second
	// scanGrace is how long those that have been scanned wait for the others, so that they are
	// named in the order in which they began.
	scanGrace = 250 * time.Millisecond
	// maxProcessEvents is how many processes the kernel may report between two scans. With more, all processes are
	// scanned instead.
	maxProcessEvents = 64
	// maxScans is how many processes that are not followed are scanned at once, by one walk or several; the
	// others' turn comes with a later one.
	maxScans = 256
	// probesAtStart is how long the start and the end wait for probes of TLS libraries.
	probesAtStart = time.Minute
	// initialPIDNamespace is the number of the PID namespace whose numbers the kernel's process events
	// have.
	initialPIDNamespace = 0xEFFFFFFC
)

// processEvents are the processes that the kernel reported: one with a server's name began, or a server ended. They wait here
// for the next scan.
type processEvents struct {
	ready chan struct{}

	mu   sync.Mutex
	pids map[int]bool
	many bool
}

func newProcessEvents() *processEvents {
	return &processEvents{ready: make(chan struct{}, 1), pids: map[int]bool{}}
}

// listen takes the kernel's process events until the ring is closed. If their numbers are not those of the agent's PID
// namespace they only show that something happened.
func (n *processEvents) listen(ring *ringbuf.Reader, numbers bool) {
	var record ringbuf.Record
	for {
		if err := ring.ReadInto(&record); err != nil {
			return
		}
		pid := 0
		if numbers && len(record.RawSample) >= 4 {
			pid = int(binary.NativeEndian.Uint32(record.RawSample))
		}
		n.add(pid)
	}
}

// add notes a process; 0 is an unknown one.
func (n *processEvents) add(pid int) {
	n.mu.Lock()
	if pid == 0 || len(n.pids) >= maxProcessEvents && !n.pids[pid] {
		n.many = true
	} else {
		n.pids[pid] = true
	}
	n.mu.Unlock()
	select {
	case n.ready <- struct{}{}:
	default:
	}
}

// take returns what came since the last take: processes, and whether there were more.
func (n *processEvents) take() (pids map[int]bool, more bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	pids, more = n.pids, n.many
	n.pids, n.many = map[int]bool{}, false
	return pids, more
}

// follow scans the processes that the kernel reports, again and again while one of them is on its way up or down. It
// scans all processes at the interval, or when the kernel reported too many.
func (q *query) follow(ctx context.Context) {
	interval := q.own.ScanInterval
	gap := min(walkGap, interval)
	walked := time.Now()
	again := map[int]bool{} // processes to scan once more
	lost := uint64(0)
	delay := interval
	for {
		timer := time.NewTimer(max(0, min(delay, interval-time.Since(walked))))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-q.events.ready:
			delay = rescanDelay
			// Process events come in groups; while they do, this pause bounds the scans.
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-time.After(rescanDelay / 5):
			}
		case <-timer.C:
			delay = min(2*delay, interval)
		}
		timer.Stop()
		pids, more := q.events.take()
		maps.Copy(again, pids)
		if n := q.processEventsLost(); n != lost {
			lost, more = n, true
		}
		if more || len(again) > maxProcessEvents {
			// Nothing is lost by waiting: a walk sees all that is there.
			again = map[int]bool{}
			if wait := gap - time.Since(walked); wait > 0 {
				select {
				case <-ctx.Done():
					return
				case <-time.After(wait):
				}
				q.events.take()
			}
			walked = time.Time{}
		}
		if time.Since(walked) >= interval {
			q.walk(scanGrace)
			walked = time.Now()
			if again = q.unsettled(again); len(again) == 0 {
				delay = interval
			} else if delay >= interval {
				delay = rescanDelay
			}
		} else if len(again) > 0 {
			q.scanPIDs(again)
		}
		if delay >= interval {
			again = map[int]bool{}
		}
	}
}

// unsettled adds to pids the servers that are on their way up, as far as there is room.
func (q *query) unsettled(pids map[int]bool) map[int]bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for id, srv := range q.fleet.tracked {
		if len(pids) < maxProcessEvents && !srv.settled(now) {
			pids[id.PID] = true
		}
	}
	return pids
}

// processEventsLost returns how many process events the kernel could not keep.
func (q *query) processEventsLost() uint64 {
	n, err := q.kernel.lost(otherNumber, bpf.QueryLossLOST_PROCESS_EVENTS)
	if err != nil {
		return 0 // the scrape reports it
	}
	return n
}

// walk scans all processes.
func (q *query) walk(grace time.Duration) {
	now := time.Now()
	candidates, err := q.scanner.Candidates()
	there := map[server.ID]bool{}
	for _, c := range candidates {
		there[c.ID] = true
	}
	q.mu.Lock()
	if candidates != nil || err == nil { // else procfs itself cannot be read now
		q.fleet.prune(there, now)
		maps.DeleteFunc(q.problems, func(id server.ID, _ error) bool { return !there[id] })
	}
	q.mu.Unlock()
	skipped := q.scanCandidates(candidates, false, grace)
	q.mu.Lock()
	defer q.mu.Unlock()
	maps.DeleteFunc(q.tried, func(id server.ID, _ trial) bool { return !there[id] || q.fleet.tracked[id] != nil })
	q.fleet.unfollowed = skipped
	if q.fleet.full() {
		q.fleet.unfollowed = 0
		for _, c := range candidates {
			if q.fleet.tracked[c.ID] == nil {
				q.fleet.unfollowed++
			}
		}
	}
	q.reportProblems(err)
}

// scanPIDs scans some processes only, and takes those from pids that need no second scan.
func (q *query) scanPIDs(pids map[int]bool) {
	now := time.Now()
	var candidates []server.Candidate
	there := map[int]server.ID{}
	for pid := range pids {
		if c, ok := q.scanner.Candidate(pid); ok {
			candidates = append(candidates, c)
			there[pid] = c.ID
		}
	}
	q.mu.Lock()
	for id, srv := range q.fleet.tracked {
		if pids[id.PID] && there[id.PID] != id {
			q.fleet.untrack(srv, now)
		}
	}
	q.mu.Unlock()
	q.scanCandidates(candidates, true, scanGrace)
	for pid := range pids {
		if _, ok := there[pid]; !ok {
			delete(pids, pid)
		}
	}
}

// batch are scans that began together.
type batch struct {
	mu     sync.Mutex
	found  []observation
	closed bool
}

// add keeps what a scan found, unless nobody waits for it any more.
func (b *batch) add(s observation) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.found = append(b.found, s)
	}
	return !b.closed
}

func (b *batch) close() []observation {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	return b.found
}

// scanCandidates scans candidates side by side, as far as they are due, and takes over what it finds.
// After the grace it goes on without those that have not answered: they are taken over when they
// answer, so that they hold up nobody. It returns how many have to wait for a later scan, see due.
func (q *query) scanCandidates(candidates []server.Candidate, reported bool, grace time.Duration) (skipped int) {
	now := time.Now()
	q.mu.Lock()
	due, skipped := q.due(candidates, reported, now)
	q.mu.Unlock()
	scan := q.scanner.ScanFunc()
	b := &batch{}
	var scans sync.WaitGroup
	for _, c := range due {
		scans.Go(func() {
			var found *server.Server
			var s observation
			err := exporterkit.Recovered(func() (err error) {
				if found, err = scan(c); found != nil {
					s = q.complete(*found)
				}
				return err
			})
			waited := found == nil || b.add(s)
			if !waited && !q.there(c.ID) {
				waited = true // it has ended meanwhile, which may be known already
			}
			q.mu.Lock()
			delete(q.scans, c.ID)
			if err == nil {
				delete(q.problems, c.ID)
			} else {
				q.problems[c.ID] = err
			}
			if !waited {
				q.fleet.applyObservations([]observation{s}, time.Now())
			}
			if srv := q.fleet.tracked[c.ID]; srv != nil && found == nil && err == nil {
				// It was taken for a server before its command line answered, or has ended.
				q.fleet.untrack(srv, time.Now())
			}
			q.mu.Unlock()
			if !waited {
				q.identify()
				q.probe()
			}
		})
	}
	await(&scans, grace)
	q.mu.Lock()
	q.fleet.applyObservations(b.close(), now)
	q.mu.Unlock()
	q.identify()
	q.probe()
	return skipped
}

// there reports whether a process has not ended.
func (q *query) there(id server.ID) bool {
	c, ok := q.scanner.Candidate(id.PID)
	return ok && c.ID == id
}

// identify queries the names of the servers' pods, and names the servers after them.
func (q *query) identify() {
	q.mu.Lock()
	uids := q.fleet.uids()
	q.mu.Unlock()
	var pods map[string]pod.Pod
	if len(uids) > 0 && q.options.Pods != nil {
		pods = q.options.Pods.Find(uids)
	}
	q.mu.Lock()
	q.fleet.identified(pods, time.Now())
	q.mu.Unlock()
}

// complete reads what a scan itself does not.
func (q *query) complete(s server.Server) observation {
	c := observation{Server: s}
	c.age, _ = s.Age() // 0 if it is not known
	c.places, c.noPlaces = placesOf(q.options, q.calls, s)
	if q.options.Pods != nil {
		var err error
		if c.pod, err = q.options.Pods.Of(s.PID); err != nil {
			c.untrusted = true
			q.log.Debug("a server is taken to be in no pod", "pid", s.PID, "err", err)
		}
	}
	q.mu.Lock()
	srv := q.fleet.tracked[s.ID]
	if srv != nil && srv.Program != s.Program {
		srv = nil // a script of the server's name that has become the server
	}
	if srv != nil {
		c.waitEvent, c.noWaitEvent = srv.waitEvent, srv.noWaitEvent
		c.status, c.noStatus = srv.status, srv.noStatus
	}
	q.mu.Unlock()
	if srv == nil || untrusted.Unanswered(c.noWaitEvent) {
		c.waitEvent, c.noWaitEvent = q.kernel.variable(s, s.DBSystem.WaitEvent(), q.calls)
	}
	if q.own.Top > 0 && (srv == nil || untrusted.Unanswered(c.noStatus)) {
		c.status, c.noStatus = q.kernel.variable(s, s.DBSystem.Status(), q.calls)
	}
	return c
}

// probe does what the fleet requests for TLS libraries, in the background: probes come and go slowly, and a library may
// lie on a file system that hangs.
func (q *query) probe() {
	q.mu.Lock()
	wanted, unwanted := q.fleet.wanted, q.fleet.unwanted
	q.fleet.wanted, q.fleet.unwanted = nil, nil
	q.mu.Unlock()
	kernel := q.kernel
	for _, s := range wanted {
		if q.own.TLS == TLSOff {
			continue
		}
		q.probing.do(func() {
			id, err := kernel.readTLS(s, q.calls)
			q.mu.Lock()
			q.fleet.probed(s, id, err, time.Now())
			q.mu.Unlock()
		})
	}
	for _, id := range unwanted {
		q.probing.do(func() {
			if err := kernel.detachTLS(id); err != nil {
				q.log.Warn("a TLS library's probes did not go cleanly", "err", err)
			}
		})
	}
}

// maxProblems bounds the servers whose problems are logged in one line.
const maxProblems = 10

// reportProblems keeps for Check what cannot be read, and logs it when it has changed.
func (q *query) reportProblems(err error) {
	ids := slices.SortedFunc(maps.Keys(q.problems), func(a, b server.ID) int { return cmp.Compare(a.PID, b.PID) })
	problems := []error{err}
	for _, id := range ids[:min(len(ids), maxProblems)] {
		problems = append(problems, q.problems[id])
	}
	now := errors.Join(problems...)
	if now != nil && (q.scanning == nil || q.scanning.Error() != now.Error()) {
		q.log.Warn("a database server cannot be scanned in full", "err", now)
	}
	q.scanning = now
}

// await waits for a group that nothing is added to any more, until the timeout.
func await(group *sync.WaitGroup, timeout time.Duration) {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}

// background counts goroutines that may hang; more may begin while somebody waits.
type background struct {
	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when none runs
}

// do runs f in a goroutine.
func (b *background) do(f func()) {
	b.mu.Lock()
	if b.running == 0 {
		b.idle = make(chan struct{})
	}
	b.running++
	b.mu.Unlock()
	go func() {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.running--; b.running == 0 {
				close(b.idle)
			}
		}()
		f()
	}()
}

// await waits until none runs, or until the timeout.
func (b *background) await(timeout time.Duration) {
	b.mu.Lock()
	idle, none := b.idle, b.running == 0
	b.mu.Unlock()
	if none {
		return
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}
