package collector

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/nvme"
	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/nvmeof"
)

const (
	// nvmeQuiet is how long a side is kept loaded with nothing to follow: a reconnect must not lose the
	// first operations.
	nvmeQuiet = time.Minute
	// nvmeSilence is how long a controller that a target serves may say nothing before its operations are
	// taken for void: they send a sign of life every few seconds, so its connection is gone.
	nvmeSilence = 90 * time.Second
	// nvmeAgain is how long a kernel that refuses is left alone.
	nvmeAgain = time.Minute
	// nvmeUnnamed is how long a path may be unknown to sysfs before it is given up.
	nvmeUnnamed = 10 * time.Second
)

// nvmeSide is the initiator or the target of this machine. Its collector's mu guards it.
type nvmeSide struct {
	*nvmeCollector
	name     string
	programs []nvmeProgram
	kernel   *nvmeKernel // nil as long as there is nothing to follow
	err      error       // why it could not be loaded
	needed   time.Time   // when there was last something to follow
	tried    time.Time   // when it was last tried to load it
	// peers are what the numbers stand for, and unnamed since when those are known that have no name yet.
	peers   map[uint32]*nvmePeer
	unnamed map[uint32]time.Time
	// doubted are the operations that the kernel's own count had none of at the latest look.
	doubted map[uint64]uint64
	// events are the programs' counts before the latest load.
	events [nvme.Events]uint64

	unseen   uint64 // operations whose end was not seen
	crowded  uint64 // paths and exports counted as "other" because there are too many
	nameless uint64 // paths that were gone before they could be named
}

// see notes that labels are in use, and returns those to use instead if there are too many.
func (s *nvmeSide) see(labels replicaLabels, now time.Time) replicaLabels {
	if _, known := s.lastSeen[labels]; !known && len(s.lastSeen) >= nvmeMaxPeers {
		s.crowded++
		labels = replicaLabels{Volume: "other", Replica: "other", Backend: labels.Backend}
	}
	s.lastSeen[labels] = now
	return labels
}

// need loads or unloads the side. A kernel that refuses is asked again, and told of once.
func (s *nvmeSide) need(needed bool, now time.Time) {
	if needed {
		s.needed = now
	}
	switch {
	case needed && s.kernel == nil && now.Sub(s.tried) >= nvmeAgain:
		s.tried = now
		kernel, err := loadNVMe(s.programs)
		if err != nil && s.err == nil {
			s.log.Error("cannot follow NVMe over Fabrics", "side", s.name, "err", err)
		}
		s.kernel, s.err = kernel, err
		if err == nil {
			s.unnamed, s.doubted = map[uint32]time.Time{}, map[uint64]uint64{}
			s.log.Info("following NVMe over Fabrics", "side", s.name)
		}
	case !needed && s.kernel == nil:
		s.err, s.tried = nil, time.Time{}
	case !needed && now.Sub(s.needed) >= nvmeQuiet:
		s.unload(now)
	}
}

// unload lets the module go, and keeps what was counted, also under numbers without a name.
func (s *nvmeSide) unload(now time.Time) {
	errs := s.kernel.detach()
	latencies, err := readMap[nvme.LatencyKey, nvme.Latency](s.kernel.collection.Maps["latencies"])
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
	s.kernel.collection.Close()
	s.kernel, s.err, s.tried = nil, nil, time.Time{}
	if err = errors.Join(append(errs, err)...); err != nil {
		s.log.Warn("end of following", "side", s.name, "err", err)
	}
	s.log.Info("nothing more to follow", "side", s.name)
}

// ignore tells the programs which disks are the machine's own, and which are no more.
func (s *nvmeSide) ignore(local map[string]bool) error {
	if s.kernel == nil {
		return nil
	}
	disks, err := readMap[nvme.DiskKey, uint32](s.kernel.collection.Maps["disks"])
	if err != nil {
		return err
	}
	errs, numbers := []error{}, map[uint32]bool{}
	for key, number := range disks {
		switch here := local[text(key.Name[:])]; {
		case here && number != nvme.Ignored:
			errs = append(errs, s.kernel.collection.Maps["disks"].Put(key, uint32(nvme.Ignored)))
			numbers[number] = true
		case !here && number == nvme.Ignored:
			_, err := remove(s.kernel.collection.Maps["disks"], key)
			errs = append(errs, err)
		}
	}
	_, _, err = s.take(numbers)
	for number := range numbers {
		delete(s.peers, number)
	}
	return errors.Join(append(errs, err)...)
}

// sweep names what is new, and frees what is gone.
func (s *nvmeSide) sweep(now time.Time) {
	if s.kernel == nil {
		return
	}
	s.err = s.ignore(s.local)
	var err error
	if s.programs[0] == initiatorPrograms[0] {
		err = s.sweepDisks(now)
	} else {
		err = s.sweepExports(now)
	}
	s.err = errors.Join(s.err, err, s.sweepOperations())
}

// sweepDisks names the paths. A disk's name is used again for another path: then either its structure in
// the kernel is another one, or what sysfs tells of it has changed.
func (s *nvmeSide) sweepDisks(now time.Time) error {
	disks, err := readMap[nvme.DiskKey, uint32](s.kernel.collection.Maps["disks"])
	if err != nil {
		return err
	}
	latest := map[string]uint32{}
	for key, number := range disks {
		if name := text(key.Name[:]); number != nvme.Ignored {
			latest[name] = max(latest[name], number)
		}
	}
	gone := map[uint32]bool{}
	var errs []error
	leave := func(key nvme.DiskKey, number uint32) {
		_, err := remove(s.kernel.collection.Maps["disks"], key)
		errs, gone[number] = append(errs, err), true
	}
	for key, number := range disks {
		if number == nvme.Ignored {
			continue
		}
		name := text(key.Name[:])
		path, there := s.paths[name]
		there = there && latest[name] == number
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
			leave(key, number)
		case !there, peer.path.NQN != path.NQN, peer.path.Address != path.Address, peer.path.Namespace != path.Namespace:
			leave(key, number)
		default:
			peer.path = path
			s.lastSeen[peer.replicaLabels] = now
		}
	}
	return errors.Join(append(errs, s.retire(gone, now))...)
}

// waits says whether a number without a name may still get one.
func (s *nvmeSide) waits(number uint32, now time.Time) bool {
	since, known := s.unnamed[number]
	if !known {
		s.unnamed[number] = now
		return true
	}
	if now.Sub(since) < nvmeUnnamed {
		return true
	}
	delete(s.unnamed, number)
	return false
}

func (s *nvmeSide) pathPeer(path nvmeof.Path, now time.Time) *nvmePeer {
	p := &nvmePeer{path: path, viewLabels: s.pathLabels(path)}
	p.replicaLabels = s.see(p.replicaLabels, now)
	return p
}

// sweepExports names what the target serves. One that nobody has used for long, and whose controllers are
// gone, is forgotten.
func (s *nvmeSide) sweepExports(now time.Time) error {
	exports, err := readMap[nvme.ExportKey, nvme.Export](s.kernel.collection.Maps["exports"])
	if err != nil {
		return err
	}
	for key, e := range exports {
		if s.peers[e.Number] != nil {
			continue
		}
		nqn := text(e.Nqn[:])
		v := s.names.Of(nqn, key.Namespace)
		address := nvmeof.Address(text(e.Address[:]), text(e.Service[:]), "loop")
		p := &nvmePeer{viewLabels: viewLabels{replicaLabels{v.Name, address, v.Backend}, replica.ViewService}, nqn: nqn, namespace: key.Namespace}
		if v.Replica == "" {
			p.View, p.Replica = replica.ViewFrontend, ""
		}
		p.replicaLabels = s.see(p.replicaLabels, now)
		p.used = now
		s.peers[e.Number] = p
	}
	operations, err := s.operations()
	if err != nil {
		return err
	}
	heard, err := s.controllers()
	if err != nil {
		return err
	}
	busy, served := map[uint32]bool{}, map[uint64]bool{}
	for _, o := range operations {
		busy[o.Number] = true
	}
	clock := s.clock()
	for _, c := range heard {
		served[c.Subsystem] = served[c.Subsystem] || clock-min(c.Seen, clock) < uint64(nvmeSilence)
	}
	gone := map[uint32]bool{}
	var errs []error
	for key, e := range exports {
		p := s.peers[e.Number]
		if busy[e.Number] || served[key.Subsystem] {
			p.used, s.lastSeen[p.replicaLabels] = now, now
		}
		if now.Sub(p.used) >= replicaRetention/2 {
			_, err := remove(s.kernel.collection.Maps["exports"], key)
			errs, gone[e.Number] = append(errs, err), true
		}
	}
	return errors.Join(append(errs, s.retire(gone, now))...)
}

func (s *nvmeSide) controllers() (map[uint64]nvme.Controller, error) {
	return readMap[uint64, nvme.Controller](s.kernel.collection.Maps["controllers"])
}

// sweepOperations frees the operations whose end was not seen.
func (s *nvmeSide) sweepOperations() error {
	operations, err := s.operations()
	if err != nil {
		return err
	}
	heard, err := s.controllers()
	if err != nil {
		return err
	}
	clock := s.clock()
	doubted := map[uint64]uint64{}
	var errs []error
	for request, o := range operations {
		peer := s.peers[o.Number]
		var void bool
		switch {
		case o.Controller != 0:
			c := heard[o.Controller]
			void = o.Start < c.Since || clock-min(max(c.Seen, o.Start), clock) >= uint64(nvmeSilence)
		// The kernel counts reads and writes; of flushes it tells nothing before 6.16.
		case peer != nil && peer.path.CountsInFlight && peer.path.InFlight == 0 && (replica.Ops[o.Op] == "read" || replica.Ops[o.Op] == "write"):
			void = s.doubted[request] == o.Start
			doubted[request] = o.Start
		}
		if void {
			was, err := remove(s.kernel.collection.Maps["operations"], request)
			errs = append(errs, err)
			if was {
				s.unseen++
			}
		}
	}
	s.doubted = doubted
	return errors.Join(errs...)
}

func (s *nvmeSide) operations() (map[uint64]nvme.Operation, error) {
	return readMap[uint64, nvme.Operation](s.kernel.collection.Maps["operations"])
}

// retire adds the counts of numbers that are gone to the totals. What is under way has no answer any more.
func (s *nvmeSide) retire(numbers map[uint32]bool, now time.Time) error {
	latencies, unanswered, err := s.take(numbers)
	for key, l := range latencies {
		labels := s.labels(key)
		counts := nvmeLatency(&l)
		s.totals.addLatency(labels, &counts, now)
		s.lastSeen[labels.replicaLabels] = now
	}
	for number, n := range unanswered {
		if peer := s.peers[number]; peer != nil {
			s.totals.unanswered[peer.viewLabels] += n
		}
	}
	for number := range numbers {
		delete(s.peers, number)
	}
	return err
}

// labels are those of a histogram; of numbers without a name "other".
func (s *nvmeSide) labels(key nvme.LatencyKey) latencyLabels {
	if peer := s.peers[key.Number]; peer != nil {
		return latencyLabels{peer.replicaLabels, peer.View, replica.Ops[key.Op]}
	}
	return latencyLabels{replicaLabels{Volume: "other", Replica: "other", Backend: "nvme"}, s.otherView(), replica.Ops[key.Op]}
}

// take removes the counts and operations of numbers from the kernel's maps and returns them.
func (s *nvmeSide) take(numbers map[uint32]bool) (map[nvme.LatencyKey]nvme.Latency, map[uint32]uint64, error) {
	taken, unanswered := map[nvme.LatencyKey]nvme.Latency{}, map[uint32]uint64{}
	if len(numbers) == 0 {
		return nil, nil, nil
	}
	operations, err := s.operations()
	errs := []error{err}
	for request, o := range operations {
		if !numbers[o.Number] {
			continue
		}
		was, err := remove(s.kernel.collection.Maps["operations"], request)
		errs = append(errs, err)
		if was {
			unanswered[o.Number]++
		}
	}
	latencies, err := readMap[nvme.LatencyKey, nvme.Latency](s.kernel.collection.Maps["latencies"])
	errs = append(errs, err)
	for key, l := range latencies {
		if numbers[key.Number] {
			taken[key] = l
			_, err := remove(s.kernel.collection.Maps["latencies"], key)
			errs = append(errs, err)
		}
	}
	return taken, unanswered, errors.Join(errs...)
}

// nvmeLatency is a histogram as the totals have it: one header describes both.
func nvmeLatency(l *nvme.Latency) replica.Latency {
	return replica.Latency{Slots: l.Slots, SumNs: l.SumNs, Bytes: l.Bytes, Failed: l.Failed}
}

// text is a string of the kernel's, up to its end.
func text(b []int8) string {
	raw := make([]byte, len(b))
	for i, c := range b {
		raw[i] = byte(c)
	}
	return unix.ByteSliceToString(raw)
}
