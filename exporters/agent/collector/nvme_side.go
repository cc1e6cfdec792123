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

// need loads or unloads the side. A kernel that refuses is asked again at each look, and told of once.
func (s *nvmeSide) need(needed bool, now time.Time) {
	if needed {
		s.needed = now
	}
	switch {
	case needed && s.kernel == nil:
		kernel, err := loadNVMe(s.programs)
		if err != nil && s.err == nil {
			s.log.Error("cannot follow NVMe over Fabrics", "side", s.name, "err", err)
		}
		s.kernel, s.err = kernel, err
		if err == nil {
			s.unnamed, s.doubted = map[uint32]time.Time{}, map[uint64]uint64{}
			s.log.Info("following NVMe over Fabrics", "side", s.name)
		}
	case !needed && s.kernel != nil && now.Sub(s.needed) >= nvmeQuiet:
		s.unload(now)
	}
}

// unload lets the module go, and keeps what was counted.
func (s *nvmeSide) unload(now time.Time) {
	errs := s.kernel.detach()
	for number := range s.peers {
		errs = append(errs, s.retire(number, now))
	}
	events, err := s.kernel.events()
	for i, n := range events {
		s.events[i] += n
	}
	s.kernel.collection.Close()
	s.kernel, s.err = nil, nil
	if err = errors.Join(append(errs, err)...); err != nil {
		s.log.Warn("end of following", "side", s.name, "err", err)
	}
	s.log.Info("nothing more to follow", "side", s.name)
}

// ignore tells the programs which disks are the machine's own.
func (s *nvmeSide) ignore(local map[string]bool) {
	if s.kernel == nil || len(local) == 0 {
		return
	}
	disks, err := readMap[nvme.DiskKey, uint32](s.kernel.collection.Maps["disks"])
	if err != nil {
		s.err = err
		return
	}
	for key, number := range disks {
		if number != nvme.Ignored && local[text(key.Name[:])] {
			s.err = s.kernel.collection.Maps["disks"].Put(key, uint32(nvme.Ignored))
			_, _ = s.forget(number)
		}
	}
}

// sweep names what is new, and frees what is gone.
func (s *nvmeSide) sweep(now time.Time) {
	if s.kernel == nil {
		return
	}
	var err error
	if s.programs[0] == initiatorPrograms[0] {
		err = s.sweepDisks(now)
	} else {
		err = s.sweepExports(now)
	}
	s.err = errors.Join(err, s.sweepOperations())
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
	var errs []error
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
			s.peers[number] = s.pathPeer(nvmeof.Path{Disk: name}, now)
			errs = append(errs, s.leave("disks", key, number, now))
		case !there, peer.path.NQN != path.NQN, peer.path.Address != path.Address, peer.path.Namespace != path.Namespace:
			errs = append(errs, s.leave("disks", key, number, now))
		default:
			peer.path = path
			s.lastSeen[peer.replicaLabels] = now
		}
	}
	return errors.Join(errs...)
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
	v := nvmeof.Volume{Name: "other", Backend: "nvme"}
	if path.NQN != "" {
		v = s.names.Of(path.NQN, path.Namespace)
	} else {
		path.Address = "other"
	}
	p := &nvmePeer{path: path, viewLabels: viewLabels{replicaLabels{v.Name, path.Address, v.Backend}, viewPath}}
	if v.Replica != "" {
		p.View = replica.ViewRequest
	}
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
		p.backing, p.device = nvmeof.Backing(s.options.SysFS, nqn, key.Namespace)
		s.peers[e.Number] = p
	}
	operations, err := s.operations()
	if err != nil {
		return err
	}
	// In use is what somebody may use: an export on a port with a controller. The kernel does not tell
	// which controller that is, so it is kept as long as there are any, and as long as something is under way.
	busy := map[uint32]bool{}
	for _, o := range operations {
		busy[o.Number] = true
	}
	heard, err := readMap[uint64, uint64](s.kernel.collection.Maps["controllers"])
	if err != nil {
		return err
	}
	alive := false
	for _, at := range heard {
		alive = alive || s.clock()-min(at, s.clock()) < uint64(nvmeSilence)
	}
	for _, e := range exports {
		if p := s.peers[e.Number]; alive || busy[e.Number] {
			s.lastSeen[p.replicaLabels] = now
		}
	}
	var errs []error
	for key, e := range exports {
		if now.Sub(s.lastSeen[s.peers[e.Number].replicaLabels]) >= replicaRetention/2 {
			errs = append(errs, s.leave("exports", key, e.Number, now))
		}
	}
	return errors.Join(errs...)
}

// sweepOperations frees the operations whose end was not seen.
func (s *nvmeSide) sweepOperations() error {
	operations, err := s.operations()
	if err != nil {
		return err
	}
	heard, err := readMap[uint64, uint64](s.kernel.collection.Maps["controllers"])
	if err != nil {
		return err
	}
	doubted := map[uint64]uint64{}
	var errs []error
	for request, o := range operations {
		peer := s.peers[o.Number]
		var void bool
		switch {
		case o.Controller != 0:
			void = s.clock()-min(max(heard[o.Controller], o.Start), s.clock()) >= uint64(nvmeSilence)
		// The kernel counts reads and writes; of flushes it tells nothing before 6.16.
		case peer != nil && peer.path.InFlight == 0 && (replica.Ops[o.Op] == "read" || replica.Ops[o.Op] == "write"):
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

// leave stops following a path or export that is gone, and keeps its counts.
func (s *nvmeSide) leave(name string, key any, number uint32, now time.Time) error {
	_, err := remove(s.kernel.collection.Maps[name], key)
	return errors.Join(err, s.retire(number, now))
}

// retire adds a number's counts to the totals. What is under way has no answer any more.
func (s *nvmeSide) retire(number uint32, now time.Time) error {
	latencies, unanswered, err := s.take(number)
	peer := s.peers[number]
	if peer == nil {
		return err
	}
	for op, l := range latencies {
		s.totals.addLatency(latencyLabels{peer.replicaLabels, peer.View, replica.Ops[op]}, &l, now)
	}
	if unanswered > 0 {
		s.totals.unanswered[peer.viewLabels] += unanswered
	}
	delete(s.peers, number)
	return err
}

// forget drops a number's counts.
func (s *nvmeSide) forget(number uint32) (uint64, error) {
	_, unanswered, err := s.take(number)
	delete(s.peers, number)
	return unanswered, err
}

// take removes a number's counts and operations from the kernel's maps and returns them.
func (s *nvmeSide) take(number uint32) (map[uint8]replica.Latency, uint64, error) {
	taken := map[uint8]replica.Latency{}
	var errs []error
	operations, err := s.operations()
	errs = append(errs, err)
	var unanswered uint64
	for request, o := range operations {
		if o.Number != number {
			continue
		}
		was, err := remove(s.kernel.collection.Maps["operations"], request)
		errs = append(errs, err)
		if was {
			unanswered++
		}
	}
	latencies, err := readMap[nvme.LatencyKey, nvme.Latency](s.kernel.collection.Maps["latencies"])
	errs = append(errs, err)
	for key, l := range latencies {
		if key.Number == number {
			taken[key.Op] = nvmeLatency(&l)
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
