package fabric

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/remote"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

const (
	// userTargetScanInterval is how often all processes are scanned for targets in user space. A volume's target
	// begins before the volume is used.
	userTargetScanInterval = 5 * time.Second
	// loginTimeout is how long a login may take: connections that only begin one must not take the room of others.
	loginTimeout = 10 * time.Second
)

// fabricUserTarget is a wire's target that is a program in user space.
type fabricUserTarget struct {
	// names are the programs', as the kernel shows them; one that ends with a star is how names begin.
	names    []string
	load     func() (*ebpf.CollectionSpec, error)
	follower platform.Follower
}

// withUserTargets is the wire with further programs.
func (w fabricWire) withUserTargets(names []string) (fabricWire, error) {
	for _, name := range names {
		if bare := strings.TrimSuffix(name, "*"); bare == "" || len(bare) > untrusted.MaxComm {
			return w, fmt.Errorf("--%s.target: %q: the kernel's name of a process has 1 to %d bytes; a * may follow", w.name, name, untrusted.MaxComm)
		}
	}
	userTarget := *w.userTarget
	userTarget.names = slices.Concat(userTarget.names, names)
	w.userTarget = &userTarget
	return w, nil
}

// is reports whether a process of this name is one.
func (s *fabricUserTarget) is(name string) bool {
	return slices.ContainsFunc(s.names, func(known string) bool {
		begins, ok := strings.CutSuffix(known, "*")
		return name == known || ok && strings.HasPrefix(name, begins)
	})
}

// fabricUserTargets are the targets in user space of this machine: the third side. Its collector's mu guards it, except
// that only scans, which come one after another, load, unload and follow, and use found, sampled, owners and left.
type fabricUserTargets struct {
	*fabricSide
	userTargetKernel *userTargetKernel // the kernel, once loaded
	// found are the processes by their ids, with their start, as of scanned.
	found   map[int]uint64
	scanned time.Time
	sampled userTargetSample
	// followed are those that the kernel's programs know.
	followed map[int]uint64
	// owners are the owners of the processes that were found, and left those of them without room.
	owners map[userTargetProcess]string
	left   map[userTargetProcess]bool

	loaded     bool           // ever
	refused    map[int]uint64 // processes that are named like a target and not root's, by their start
	refusals   uint64
	leftOut    uint64 // processes that are not followed because there are too many
	scanErrors uint64
	// known are the processes that the latest scan has seen, and failed why some could not be left.
	known  map[int]bool
	failed error
	// warnings is the log for what others can cause any number of.
	warnings *slog.Logger
	// counted are the programs' counts before the latest load.
	counted [bpf.UserTargetEvents]uint64
}

// userTargetProcess is a process, distinguished by its start from a later one of the same number.
type userTargetProcess struct {
	pid   int
	start uint64
}

// userTargetSample is what was read of the kernel's maps and of open sockets, in this order: what is in an earlier part
// is in a later one, if it is still there.
type userTargetSample struct {
	operations map[uint64]bpf.Operation
	exports    map[bpf.ExportKey]bpf.Export
	sessions   map[uint64]bpf.Session
	older      map[uint64]uint8
	open       map[uint64]bool // sockets, by inode number
	err        error
}

func newUserTargets(c *fabricCollector) *fabricUserTargets {
	s := &fabricUserTargets{fabricSide: newSide(c, "user-target", operation.ViewTarget), followed: map[int]uint64{}, refused: map[int]uint64{},
		warnings: slog.New(collector.NewBoundedHandler(c.log.Handler()))}
	s.load = func() (*fabricKernel, error) {
		kernel, err := loadUserTarget(c.options, c.wire.userTarget)
		if err != nil {
			return nil, err
		}
		if err := kernel.attach(); err != nil {
			return nil, errors.Join(err, kernel.Close())
		}
		s.loaded = true
		s.userTargetKernel, s.followed, s.sampled = kernel, map[int]uint64{}, userTargetSample{}
		return kernel.fabricKernel, nil
	}
	s.try = func() (*fabricKernel, error) {
		kernel, err := loadUserTarget(c.options, c.wire.userTarget)
		if err != nil {
			return nil, err
		}
		return kernel.fabricKernel, nil
	}
	s.missing = func() string {
		if len(s.found) > 0 {
			return ""
		}
		return "there is no process of root's named " + strings.Join(s.wire.userTarget.names, ", ")
	}
	s.watch, s.beforeUnload = s.sweepSessions, s.keepEvents
	return s
}

// find scans for processes now and then, and reads the sockets of those that are followed each time. It takes no lock.
func (s *fabricUserTargets) find() {
	switch now := time.Now(); {
	case now.Sub(s.scanned) >= userTargetScanInterval:
		s.scanned, s.known = now, map[int]bool{}
		s.scanProcesses()
	case s.kernel != nil:
		s.scanProcesses() // initiators are back within a second after a target's restart
	}
	if s.kernel != nil {
		s.sampled = s.userTargetKernel.sample(s.followed)
	}
}

// scanProcesses finds the processes, and reads those only that were not there before. Only what the kernel itself knows
// is read of them, so that none of them can make it wait.
func (s *fabricUserTargets) scanProcesses() {
	found, refused, there := map[int]uint64{}, map[int]uint64{}, map[int]bool{}
	whole := len(s.known) == 0
	pids, err := untrusted.Processes(s.options.ProcFS)
	for _, pid := range pids {
		if there[pid] = true; s.known[pid] {
			continue
		}
		s.known[pid] = true
		dir := filepath.Join(s.options.ProcFS, strconv.Itoa(pid))
		name, _, start, err := collector.ProcessStat(dir)
		if err != nil || !s.wire.userTarget.is(name) {
			continue
		}
		switch root, err := collector.OwnedByRoot(dir); {
		case err != nil: // it has ended
		case root:
			found[pid] = start
		default:
			refused[pid] = start
		}
	}
	for _, pid := range s.note(found, refused, there, whole, err) {
		s.warnings.Warn("a process is named like a target, but not root's: not followed", "pid", pid)
	}
}

// note keeps what a scan has found, and returns those that are refused and were not before. err is why the scan has not
// seen all.
func (s *fabricUserTargets) note(found, refused map[int]uint64, there map[int]bool, whole bool, err error) (news []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.scanErrors++
		return nil // what was found is taken to be still there
	}
	for pid, start := range refused {
		if s.refused[pid] != start {
			s.refusals++
			news = append(news, pid)
		}
	}
	for pid := range s.known {
		if !there[pid] {
			delete(s.known, pid)
		}
	}
	if !whole {
		keep(found, s.found, there)
		keep(refused, s.refused, there)
	}
	s.found, s.refused = found, refused
	return news
}

// keep adds what was found before and is still there.
func keep(found, before map[int]uint64, there map[int]bool) {
	for pid, start := range before {
		if _, again := found[pid]; !again && there[pid] {
			found[pid] = start
		}
	}
}

// follow loads what is needed, and leaves the processes that have ended. The new ones come after that: see begin.
func (s *fabricUserTargets) follow(now time.Time) {
	s.failed = nil
	s.need(len(s.found) > 0, now)
	if s.kernel == nil {
		clear(s.followed)
		return
	}
	for pid, start := range s.followed {
		if s.found[pid] != start {
			s.failed = errors.Join(s.failed, s.userTargetKernel.unfollow(pid))
			delete(s.followed, pid)
		}
	}
}

// begin passes new processes to follow to the programs, of each owner no more than its share. The caller must not hold
// the lock.
func (s *fabricUserTargets) begin() {
	if s.kernel == nil {
		s.owners, s.left = nil, nil
		return
	}
	shares := s.shares()
	left := map[userTargetProcess]bool{}
	for pid, start := range s.found {
		if _, known := s.followed[pid]; known {
			continue
		}
		p := userTargetProcess{pid, start}
		if owner := s.owners[p]; shares[owner] < userTargetShare && len(s.followed) < userTargetMaxProcesses {
			shares[owner]++
			followed, err := s.userTargetKernel.follow(pid, start)
			s.begun(p, followed, err)
		} else {
			left[p] = true
		}
	}
	s.countRejected(left)
}

// shares finds out whose the processes are that were found, and returns how many of each owner are followed.
func (s *fabricUserTargets) shares() map[string]int {
	owners, shares := map[userTargetProcess]string{}, map[string]int{}
	for pid, start := range s.found {
		p := userTargetProcess{pid, start}
		owner, known := s.owners[p]
		if !known {
			owner = pod.Owner(s.options.ProcFS, pid)
		}
		owners[p] = owner
		if _, followed := s.followed[pid]; followed {
			shares[owner]++
		}
	}
	s.owners = owners
	return shares
}

// begun keeps whether a process is followed now; err is why it is not, or not whole.
func (s *fabricUserTargets) begun(p userTargetProcess, followed bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.scanErrors++
		s.err = errors.Join(s.err, err)
	}
	if followed {
		s.followed[p.pid] = p.start
	}
}

// countRejected counts the processes without room, each once.
func (s *fabricUserTargets) countRejected(left map[userTargetProcess]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for p := range left {
		if !s.left[p] {
			s.leftOut++
		}
	}
	s.left = left
}

// sweepSessions names what sessions use, and frees what those leave behind that have ended. No operation stays without
// an end: a session reports all ends, by its answers, by what the initiator has aborted, or by its own end.
func (s *fabricUserTargets) sweepSessions(now time.Time) error {
	if s.sampled.sessions == nil {
		return errors.Join(s.failed, s.sampled.err)
	}
	if s.sampled.err != nil {
		s.scanErrors++
		return s.sampled.err
	}
	errs := []error{s.failed}
	alive, clock := map[uint64]bool{}, s.clock()
	for inode, session := range s.sampled.sessions {
		late := session.LoggingIn != 0 && clock-min(session.Since, clock) > uint64(loginTimeout)
		if s.sampled.open[inode] && !late {
			alive[uint64(session.Id)] = true
			continue
		}
		_, err := collector.Remove(s.kernel.collection.Maps["sessions"], inode)
		errs = append(errs, err)
	}
	for inode := range s.sampled.older {
		if !s.sampled.open[inode] {
			_, err := collector.Remove(s.kernel.collection.Maps["older"], inode)
			errs = append(errs, err)
		}
	}
	gone := map[uint32]bool{}
	for key, e := range s.sampled.exports {
		if !alive[key.Subsystem] {
			_, err := collector.Remove(s.kernel.collection.Maps["exports"], key)
			errs, gone[e.Number] = append(errs, err), true
		}
		p := s.peers[e.Number]
		if p == nil {
			if p = s.unitPeer(&key, &e, now, gone[e.Number]); p == nil {
				continue
			}
			s.peers[e.Number] = p
		}
		s.lastSeen[p.Labels] = now
	}
	errs = append(errs, s.retire(gone, now))
	for request, o := range s.sampled.operations {
		// Nothing is reported of a LUN without a number, nor that its session is gone.
		if o.Number == 0 && !alive[request>>32] {
			_, err := collector.Remove(s.kernel.collection.Maps["operations"], request)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// unitPeer names a session's LUN; nil if its name may still be found. For a session older than the agent, whose login
// was not seen, the initiator has the name if it is this machine.
func (s *fabricUserTargets) unitPeer(key *bpf.ExportKey, e *bpf.Export, now time.Time, last bool) *fabricPeer {
	target := collector.Text(e.Nqn[:])
	local, initiator := remote.SocketAddress(collector.Raw(e.Address[:])), remote.SocketAddress(collector.Raw(e.Service[:]))
	if target == "" {
		for _, p := range s.paths {
			if p.Came == local && p.Initiator == initiator && local != "" {
				target = p.Subsystem
				break
			}
		}
	}
	p := &fabricPeer{subsystem: target, number: key.Namespace, used: now}
	if target == "" {
		if !last && s.waits(e.Number, now) {
			return nil
		}
		s.nameless++
		p.ViewLabels = operation.ViewLabels{Labels: operation.Labels{Volume: "other", Replica: "other", Backend: s.wire.name}, View: s.unnamedView}
		return p
	}
	delete(s.unnamed, e.Number)
	v := s.names.Of(target, key.Namespace)
	p.ViewLabels = operation.ViewLabels{Labels: operation.Labels{Volume: v.Name, Backend: v.Backend}, View: operation.ViewTarget}
	if v.Replica != "" {
		p.View, p.Replica = operation.ViewService, local
	}
	p.Labels = s.see(p.Labels, now)
	return p
}

// keepEvents keeps the programs' counts.
func (s *fabricUserTargets) keepEvents() error {
	return collector.AddEvents(s.kernel.collection.Maps["user_target_events"], s.counted[:])
}

// concerned reports whether there was anything to report since the agent's start: a process that was followed, or one
// that was not.
func (s *fabricUserTargets) concerned() bool {
	return s.loaded || s.refusals > 0 || s.scanErrors > 0
}

// sendEvents reports what these programs have lost, and the processes that are not followed.
func (s *fabricUserTargets) sendEvents(send func(prometheus.Metric)) error {
	events := s.counted
	var err error
	if s.kernel != nil {
		err = collector.AddEvents(s.kernel.collection.Maps["user_target_events"], events[:])
	}
	wire := s.wire.name + "-" + s.name
	send(collector.Counter(operation.Resyncs, float64(events[bpf.UserTargetResync]), wire))
	send(collector.Counter(operation.ProcessesRefused, float64(s.refusals), wire))
	for reason, n := range map[string]uint64{
		"connections_full":  events[bpf.UserTargetLostSession],
		"memory_unreadable": events[bpf.UserTargetLostFault],
		"processes_full":    s.leftOut,
		"sample_failed":     s.scanErrors,
	} {
		send(collector.Counter(operation.Lost, float64(n), wire, reason))
	}
	return err
}
