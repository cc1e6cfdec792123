package fabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/remote"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// unloadDelay is how long a side stays loaded with nothing to follow: a reconnect must not lose the first
	// operations.
	unloadDelay = time.Minute
	// keepAliveTimeout is how long a controller that a target serves may send nothing before its operations count as
	// void. Controllers send a keep-alive every few seconds, so that its connection is gone by then.
	keepAliveTimeout = 90 * time.Second
	// loadRetryInterval is the least time between two attempts to load programs that the kernel refuses.
	loadRetryInterval = time.Minute
	// nameTimeout is how long a path may be unknown to sysfs before it is given up.
	nameTimeout = 10 * time.Second
	// pathRemovalDelay is how long a path that is gone from sysfs is kept. The kernel may still send to its disk, such
	// as a last flush.
	pathRemovalDelay = 10 * time.Second
)

// fabricSide is the initiator or the target of this machine. Its collector's mu guards it.
type fabricSide struct {
	*fabricCollector
	name string
	// load loads and attaches the programs, try has the kernel's verifier check them only.
	load, try func() (*fabricKernel, error)
	// missing is what has to be there before there is anything to follow; empty if it is there.
	missing func() string
	// watch finds names for what is new, and frees what is gone, with the operations that have no end.
	watch func(now time.Time) error
	// beforeUnload saves further counts before the programs are unloaded; it may be nil.
	beforeUnload func() error
	// unnamedView is that of what has no number of its own.
	unnamedView operation.View
	kernel      *fabricKernel // nil as long as there is nothing to follow
	err         error         // why it could not be loaded
	needed      time.Time     // when there was last something to follow
	tried       time.Time     // when it was last tried to load it
	// peers are what the numbers stand for, and unnamed since when those are known that have no name yet.
	peers   map[uint32]*fabricPeer
	unnamed map[uint32]time.Time
	// doubted are the operations that the kernel's own count had none of at the latest read.
	doubted map[uint64]uint64
	// events are the programs' counts before the latest load.
	events [bpf.Events]uint64

	unseen     uint64 // operations whose end was not seen
	overflowed uint64 // paths and exports counted as "other" because there are too many
	nameless   uint64 // paths that were gone before they could be named
}

func newSide(c *fabricCollector, name string, unnamed operation.View) *fabricSide {
	return &fabricSide{fabricCollector: c, name: name, unnamedView: unnamed, peers: map[uint32]*fabricPeer{}}
}

// ofModule makes it a side that a kernel module reports.
func (s *fabricSide) ofModule(programs []fabricProgram, module string, watch func(time.Time) error) {
	s.load = func() (*fabricKernel, error) { return loadFabric(s.wire, programs) }
	s.try = func() (*fabricKernel, error) { return tryFabric(s.wire, programs) }
	s.missing = func() string {
		if _, err := os.Stat(filepath.Join(s.options.SysFS, "module", module)); err == nil {
			return ""
		}
		return "the kernel has not loaded the module " + module
	}
	s.watch = func(now time.Time) error { return errors.Join(watch(now), s.sweepOperations()) }
}

// see notes that labels are in use, and returns those to use instead if there are too many.
func (s *fabricSide) see(labels operation.Labels, now time.Time) operation.Labels {
	if _, known := s.lastSeen[labels]; !known && len(s.lastSeen) >= maxPeers {
		s.overflowed++
		labels = operation.Labels{Volume: "other", Replica: "other", Backend: labels.Backend}
	}
	s.lastSeen[labels] = now
	return labels
}

// need loads or unloads the side. A kernel that refuses is retried, and reported once.
func (s *fabricSide) need(needed bool, now time.Time) {
	if needed {
		s.needed = now
	}
	switch {
	case needed && s.kernel == nil && now.Sub(s.tried) >= loadRetryInterval:
		s.tried = now
		kernel, err := s.load()
		if err != nil && s.err == nil {
			s.log.Error("cannot follow "+s.wire.title, "side", s.name, "err", err)
		}
		s.kernel, s.err = kernel, err
		if err == nil {
			s.unnamed, s.doubted = map[uint32]time.Time{}, map[uint64]uint64{}
			s.log.Info("following "+s.wire.title, "side", s.name)
		}
	case !needed && s.kernel == nil:
		s.err, s.tried = nil, time.Time{}
	case !needed && now.Sub(s.needed) >= unloadDelay:
		s.unload(now)
	}
}

// unload lets the module go, and keeps what was counted, also under numbers without a name.
func (s *fabricSide) unload(now time.Time) {
	errs := s.kernel.detach()
	latencies, err := collector.ReadMap[bpf.LatencyKey, operation.Latency](s.kernel.collection.Maps["latencies"])
	errs = append(errs, err)
	numbers := map[uint32]bool{}
	for key := range latencies {
		numbers[key.Number] = true
	}
	for number := range s.peers {
		numbers[number] = true
	}
	errs = append(errs, s.retire(numbers, now))
	events, err := s.kernel.events()
	for i, n := range events {
		s.events[i] += n
	}
	if s.beforeUnload != nil {
		errs = append(errs, s.beforeUnload())
	}
	s.kernel.collection.Close()
	s.kernel, s.err, s.tried = nil, nil, time.Time{}
	if err = errors.Join(append(errs, err)...); err != nil {
		s.log.Warn("end of following", "side", s.name, "err", err)
	}
	s.log.Info("nothing more to follow", "side", s.name)
}

// disks are the numbers of the disks that the programs have seen, by the kernel's own number of each.
func (s *fabricSide) disks() (map[uint64]uint32, error) {
	return collector.ReadMap[uint64, uint32](s.kernel.collection.Maps["disks"])
}

// ignore passes to the programs which of the disks are the machine's own, and which no longer are. It leaves the rest
// in disks.
func (s *fabricSide) ignore(disks map[uint64]uint32, local map[uint64]bool) error {
	errs, numbers := []error{}, map[uint32]bool{}
	for disk, number := range disks {
		here, ignored := local[disk], number == bpf.Ignored
		switch {
		case here && !ignored:
			errs = append(errs, s.kernel.collection.Maps["disks"].Put(disk, uint32(bpf.Ignored)))
			delete(s.unnamed, number)
			numbers[number] = true
		case !here && ignored:
			_, err := collector.Remove(s.kernel.collection.Maps["disks"], disk)
			errs = append(errs, err)
		}
		if here || ignored {
			delete(disks, disk)
		}
	}
	_, _, err := s.take(numbers)
	return errors.Join(append(errs, err)...)
}

// sweep names what is new, and frees what is gone.
func (s *fabricSide) sweep(now time.Time) {
	if s.kernel == nil {
		return
	}
	s.err = s.watch(now)
}

// sweepDisks distinguishes the machine's own disks from those of paths, and names the paths.
func (s *fabricSide) sweepDisks(now time.Time) error {
	disks, err := s.disks()
	if err != nil {
		return err
	}
	errs := []error{s.ignore(disks, s.local)}
	paths := map[uint64]remote.Path{}
	for _, p := range s.paths {
		if p.Sequence != 0 {
			paths[p.Sequence] = p
		}
	}
	busy, err := s.busy()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	gone := map[uint32]bool{}
	leave := func(disk uint64, number uint32) {
		_, err := collector.Remove(s.kernel.collection.Maps["disks"], disk)
		errs, gone[number] = append(errs, err), true
	}
	for disk, number := range disks {
		path, there := paths[disk]
		peer := s.peers[number]
		switch {
		case peer == nil && there:
			s.peers[number] = s.pathPeer(path, now)
			delete(s.unnamed, number)
		case peer == nil:
			if s.waits(number, now) {
				continue
			}
			s.nameless++
			leave(disk, number)
		case !there && peer.stays(busy[number], s.clock()):
			s.lastSeen[peer.Labels] = now
		// A disk stays when its session is moved to another portal.
		case !there, peer.path.Subsystem != path.Subsystem, peer.path.Address != path.Address, peer.path.Number != path.Number, peer.path.Unit != path.Unit:
			leave(disk, number)
		default:
			peer.path, peer.left = path, 0
			s.lastSeen[peer.Labels] = now
		}
	}
	return errors.Join(append(errs, s.retire(gone, now))...)
}

// waits reports whether a number without a name may still get one.
func (s *fabricSide) waits(number uint32, now time.Time) bool {
	since, known := s.unnamed[number]
	if !known {
		s.unnamed[number] = now
		return true
	}
	if now.Sub(since) < nameTimeout {
		return true
	}
	delete(s.unnamed, number)
	return false
}

func (s *fabricSide) pathPeer(path remote.Path, now time.Time) *fabricPeer {
	p := &fabricPeer{path: path, ViewLabels: s.pathLabels(path)}
	p.Labels = s.see(p.Labels, now)
	return p
}

// sweepExports names what the target serves. One that nobody has used for long, and whose controllers are
// gone, is forgotten.
func (s *fabricSide) sweepExports(now time.Time) error {
	exports, err := collector.ReadMap[bpf.ExportKey, bpf.Export](s.kernel.collection.Maps["exports"])
	if err != nil {
		return err
	}
	for key, e := range exports {
		if s.peers[e.Number] != nil {
			continue
		}
		p := &fabricPeer{subsystem: collector.Text(e.Nqn[:])}
		v := s.names.Of(p.subsystem, key.Namespace)
		p.ViewLabels = operation.ViewLabels{Labels: operation.Labels{Volume: v.Name, Replica: s.wire.export(&key, &e, p), Backend: v.Backend}, View: operation.ViewService}
		if v.Replica == "" {
			p.View, p.Replica = operation.ViewFrontend, ""
		}
		p.Labels = s.see(p.Labels, now)
		p.used = now
		s.peers[e.Number] = p
	}
	busy, err := s.busy()
	if err != nil {
		return err
	}
	heard, err := s.controllers()
	if err != nil {
		return err
	}
	served := map[uint64]bool{}
	clock := s.clock()
	for _, c := range heard {
		served[c.Subsystem] = served[c.Subsystem] || clock-min(c.Seen, clock) < uint64(keepAliveTimeout)
	}
	gone := map[uint32]bool{}
	var errs []error
	for key, e := range exports {
		p := s.peers[e.Number]
		if busy[e.Number] || served[key.Subsystem] || s.wire.aborts && p.backing.Path != "" {
			p.used, s.lastSeen[p.Labels] = now, now
		}
		if now.Sub(p.used) >= operation.Retention/2 {
			_, err := collector.Remove(s.kernel.collection.Maps["exports"], key)
			errs, gone[e.Number] = append(errs, err), true
		}
	}
	return errors.Join(append(errs, s.retire(gone, now))...)
}

func (s *fabricSide) controllers() (map[uint64]bpf.Controller, error) {
	return collector.ReadMap[uint64, bpf.Controller](s.kernel.collection.Maps["controllers"])
}

// sweepOperations frees the operations whose end was not seen, or that were given up.
func (s *fabricSide) sweepOperations() error {
	operations, err := s.operations()
	if err != nil {
		return err
	}
	heard, err := s.controllers()
	if err != nil {
		return err
	}
	clock := s.clock()
	for _, p := range s.peers {
		p.old = false
	}
	doubted := map[uint64]uint64{}
	var errs []error
	for request, o := range operations {
		if o.Number == bpf.Ignored {
			// One that was aborted has no end, and its memory may never be another one's.
			if clock-min(o.Start, clock) >= uint64(keepAliveTimeout) {
				_, err := collector.Remove(s.kernel.collection.Maps["operations"], request)
				errs = append(errs, err)
			}
			continue
		}
		peer := s.peers[o.Number]
		void, doubt := s.judge(&o, peer, heard[o.Controller], clock)
		if doubt {
			doubted[request] = o.Start
			void = s.doubted[request] == o.Start
		}
		if !void {
			continue
		}
		was, err := collector.Remove(s.kernel.collection.Maps["operations"], request)
		errs = append(errs, err)
		switch {
		case was && o.GivenUp != 0 && peer != nil:
			s.totals.Unanswered[peer.ViewLabels]++
		case was:
			s.unseen++
		}
	}
	s.doubted = doubted
	return errors.Join(errs...)
}

// judge reports whether an operation is void, as its end cannot come any more, or whether that is so if the next read
// confirms it.
func (s *fabricSide) judge(o *bpf.Operation, peer *fabricPeer, heard bpf.Controller, clock uint64) (void, doubt bool) {
	// The kernel counts reads and writes; it does not report flushes before 6.16.
	data := operation.Ops[o.Op] == "read" || operation.Ops[o.Op] == "write"
	silent := func(since uint64) bool { return clock-min(since, clock) >= uint64(keepAliveTimeout) }
	switch {
	case o.Controller == 0:
		return false, data && peer != nil && peer.path.CountsInFlight && peer.path.InFlight == 0
	case o.Start < heard.Since:
		return true, false
	case s.wire.aborts && data && peer != nil && peer.backing.CountsInFlight:
		old := silent(o.Start)
		peer.old = peer.old || old
		return false, old && peer.backing.InFlight == 0
	}
	return silent(max(heard.Seen, o.Start)), false
}

// operations are those under way, also those for no disk, whose number is nobody's.
func (s *fabricSide) operations() (map[uint64]bpf.Operation, error) {
	return collector.ReadMap[uint64, bpf.Operation](s.kernel.collection.Maps["operations"])
}

// busy are the numbers that have an operation under way.
func (s *fabricSide) busy() (map[uint32]bool, error) {
	operations, err := s.operations()
	busy := map[uint32]bool{}
	for _, o := range operations {
		busy[o.Number] = true
	}
	return busy, err
}

// retire adds the counts of numbers that are gone to the totals. What is under way has no answer any more.
func (s *fabricSide) retire(numbers map[uint32]bool, now time.Time) error {
	latencies, unanswered, err := s.take(numbers)
	for key, l := range latencies {
		labels := s.labels(key)
		s.totals.AddLatency(labels, &l, now)
		s.lastSeen[labels.Labels] = now
	}
	for number, n := range unanswered {
		if peer := s.peers[number]; peer != nil {
			s.totals.Unanswered[peer.ViewLabels] += n
		}
	}
	for number := range numbers {
		delete(s.peers, number)
	}
	return err
}

// labels are those of a histogram; of numbers without a name "other".
func (s *fabricSide) labels(key bpf.LatencyKey) operation.LatencyLabels {
	if peer := s.peers[key.Number]; peer != nil {
		return operation.LatencyLabels{Labels: peer.Labels, View: peer.View, Op: operation.Ops[key.Op]}
	}
	return operation.LatencyLabels{Labels: operation.Labels{Volume: "other", Replica: "other", Backend: s.wire.name}, View: s.unnamedView, Op: operation.Ops[key.Op]}
}

// take removes the counts and operations of numbers from the kernel's maps and returns them.
func (s *fabricSide) take(numbers map[uint32]bool) (map[bpf.LatencyKey]operation.Latency, map[uint32]uint64, error) {
	taken, unanswered := map[bpf.LatencyKey]operation.Latency{}, map[uint32]uint64{}
	if len(numbers) == 0 {
		return nil, nil, nil
	}
	operations, err := s.operations()
	errs := []error{err}
	for request, o := range operations {
		if !numbers[o.Number] {
			continue
		}
		was, err := collector.Remove(s.kernel.collection.Maps["operations"], request)
		errs = append(errs, err)
		if was {
			unanswered[o.Number]++
		}
	}
	given, err := collector.ReadMap[uint32, uint64](s.kernel.collection.Maps["unanswered"])
	errs = append(errs, err)
	for number, n := range given {
		if numbers[number] {
			unanswered[number] += n
			_, err := collector.Remove(s.kernel.collection.Maps["unanswered"], number)
			errs = append(errs, err)
		}
	}
	latencies, err := collector.ReadMap[bpf.LatencyKey, operation.Latency](s.kernel.collection.Maps["latencies"])
	errs = append(errs, err)
	for key, l := range latencies {
		if numbers[key.Number] {
			taken[key] = l
			_, err := collector.Remove(s.kernel.collection.Maps["latencies"], key)
			errs = append(errs, err)
		}
	}
	return taken, unanswered, errors.Join(errs...)
}

// check reports what is followed; where nothing is, whether the kernel takes the programs, and what it lacks.
func (s *fabricSide) check() exporterkit.CheckResult {
	r := exporterkit.CheckResult{Part: s.wire.name + ": " + s.name, Err: s.err, Optional: true}
	missing := s.missing()
	switch {
	case s.kernel != nil:
		r.Note = fmt.Sprintf("%d followed", len(s.peers))
	case s.err != nil:
		r.Note = s.wire.title + " is not measured at this end"
	case missing != "":
		r.Note = "nothing to follow: " + missing
		if kernel, err := s.try(); err != nil {
			r.Err = err
		} else {
			r.Err = kernel.Close()
			r.Note += "; its verifier takes the programs"
		}
	default:
		r.Note = "nothing to follow"
	}
	return r
}
