// Package replica is the collector "replica": how long each replica of a volume takes, and what replication adds.
package replica

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// scanInterval is how often all processes are scanned. New ones are seen at once by a process event from the
	// kernel; this is for those that a process event missed.
	scanInterval = 10 * time.Second
	// maxLogged bounds the lines of the log about processes between two scans.
	maxLogged = 16
)

// New returns the collector of each replica's latency, for the storage backends
// whose wire is known.
func New(o collector.Options) (collector.Collector, error) {
	return newReplica(o, dataconnWire()), nil
}

func newReplica(o collector.Options, wires ...replicaWire) *replicaCollector {
	c := &replicaCollector{log: o.Log.With("collector", "replica"), node: o.Node}
	limitedLog := slog.New(collector.NewBoundedHandler(c.log.Handler()))
	for _, w := range wires {
		c.wires = append(c.wires, &replicaFollower{
			log:        c.log.With("wire", w.name),
			limitedLog: limitedLog.With("wire", w.name),
			wire:       w,
			options:    o,
			byPID:      map[int]*followedProcess{},
			bySlot:     map[uint32]*followedProcess{},
			rejected:   map[int]uint64{},
			considered: map[int]chan struct{}{},
			reader:     replicaReader{o.ProcFS, w, o.SharedCalls(), newOwnerWaits(ownerTimeout)},
			disks:      untrusted.NewCalls(untrusted.DefaultTimeout, disksHanging),
			unplaced:   make(chan struct{}, 1),
			clock:      collector.Monotonic,
			sockets:    map[uint64]*watchedSocket{},
			closed:     map[uint32]bool{},
			overflowed: map[uint32]bool{},
			cpu:        map[processSeries]threadCPU{},
			volumes:    map[string]bool{},
			totals:     operation.NewTotals(),
			acks:       map[operation.Labels]bpf.Acks{},
			idle:       map[uint32]time.Time{},
			lastSeen:   map[operation.Labels]time.Time{},
		})
	}
	return c
}

// replicaCollector measures the replicas of volumes, one follower for each wire.
type replicaCollector struct {
	log   *slog.Logger
	node  string
	wires []*replicaFollower
	stop  context.CancelFunc
	// polling are those that run at an interval, reading those that the kernel wakes.
	polling, reading sync.WaitGroup
}

// Start implements Collector.
func (c *replicaCollector) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	for _, f := range c.wires {
		this, err := platform.Find(f.options.AttachMode)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		kernel, err := loadReplicaKernel(this, f.wire, f.options.ProcFS, f.options.Tracing, f.options.SharedDispatcher())
		if err != nil {
			this.Features.SetUnavailable(platform.Replicas, err)
			return errors.Join(err, c.Close())
		}
		f.kernel = kernel
		f.options.Tracing.NamedReplicas(f.replicaOf)
		f.options.Tracing.SeenReplicas(f.unreported, f.isFollowed)
		f.options.Replicas.Add(f.placedReplicas)
		if err := f.scan(); err != nil {
			return errors.Join(err, c.Close())
		}
		c.reading.Go(f.readProcessEvents)
		c.polling.Go(func() { f.scanOften(ctx) })
		c.polling.Go(func() { f.watch(ctx) })
		c.polling.Go(func() { f.placeOften(ctx) })
		c.polling.Go(func() { f.countCPU(ctx) })
	}
	return nil
}

// Check implements Collector.
func (c *replicaCollector) Check() []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, f := range c.wires {
		for _, h := range f.kernel.hooks {
			results = append(results, exporterkit.CheckResult{Part: "replica: program " + h.program, Note: "at " + f.kernel.groups[h.program].AttachTo()})
		}
		f.mu.Lock()
		results = append(results, exporterkit.CheckResult{Part: "replica: wire " + f.wire.name, Note: fmt.Sprintf("%d engines and replicas found", len(f.byPID))})
		f.mu.Unlock()
		results = append(results, exporterkit.CheckResult{Part: "replica: sockets of engines and replicas", Err: f.sample(), Optional: true,
			Note: "what lies unread in them, and which of them are closed"})
	}
	return results
}

// Close implements Collector.
func (c *replicaCollector) Close() error {
	if c.stop != nil {
		c.stop()
	}
	c.polling.Wait()
	var errs []error
	for _, f := range c.wires {
		if f.kernel != nil {
			f.options.Tracing.SeenReplicas(nil, nil)
			errs = append(errs, f.kernel.Close())
		}
	}
	c.reading.Wait()
	return errors.Join(errs...)
}

// replicaFollower follows the processes of one wire and keeps what they leave behind.
type replicaFollower struct {
	log *slog.Logger
	// limitedLog is the log for what others can cause any number of.
	limitedLog *slog.Logger
	wire       replicaWire
	options    collector.Options
	kernel     *replicaKernel

	reader replicaReader
	// disks are the calls on replicas' directories, which hang with their disks.
	disks *untrusted.Calls
	// unplaced wakes placeOften.
	unplaced chan struct{}
	// clock is the kernel's clock of the programs' times; tests let hours pass.
	clock func() uint64

	// following is held while it is decided which processes are followed. Nothing is read for that which a process can
	// delay. A scrape never waits for it; a holder of mu must not lock it.
	following sync.Mutex

	// sampling is held by the sample under way: each goes on from the one before. A scrape never waits for it; a holder of
	// mu must not lock it.
	sampling sync.Mutex

	// mu guards the rest. Its holder reads and writes memory and the kernel's maps only.
	mu     sync.Mutex
	slot   uint32
	byPID  map[int]*followedProcess
	bySlot map[uint32]*followedProcess
	// rejected holds processes that could not be understood, by their start, so that each is logged once.
	rejected map[int]uint64
	// considered are the processes that are being examined, and what is closed when that is over.
	considered map[int]chan struct{}
	// cpu is what processes used, those that have ended included, by the labels that one of those there has.
	cpu map[processSeries]threadCPU
	// volumes are the values of the label volume in use.
	volumes map[string]bool
	// totals and acks are the counts of connections and processes that are gone.
	totals *operation.Totals
	acks   map[operation.Labels]bpf.Acks
	// peers are those that the latest sweep has seen, by number.
	peers map[uint32]bpf.PeerKey
	// idle is since when a peer has no connection.
	idle     map[uint32]time.Time
	lastSeen map[operation.Labels]time.Time
	// overflowed are the peers counted under "other" because there are too many names already.
	overflowed map[uint32]bool
	// sockets are those of followed processes that carry operations, by inode number.
	sockets map[uint64]*watchedSocket
	// doubts are the operations on unix sockets that may have been answered unseen.
	doubts map[bpf.OperationKey]*doubt
	// closed are the numbers of connections that a sample has just found closed.
	closed       map[uint32]bool
	logged       int
	problems     uint64 // processes that could not be followed
	refused      uint64 // processes that are not root's
	overflow     uint64 // processes counted under volume "other", connections under replica "other"
	operations   operation.Seen
	resynced     uint64 // operations void because their answer went by unseen
	expired      uint64 // writes whose end was not seen
	sampleErrors uint64 // samples of the sockets that failed
	unwatched    uint64 // sockets not sampled because there are too many
}

// followedProcess is an engine or replica that the kernel side follows.
type followedProcess struct {
	replicaProcess
	pid    int
	start  uint64
	slot   uint32
	volume string // the label, which may be "other"
	peers  uint32
	// device is the disk of a replica's directory, once placed.
	device string
	placed bool
	// agent is the process of a replica's sync agent, and agentStart its start; 0 if there is none.
	agent      int
	agentStart uint64
	stopped
	threads threads
	cpu     processCPU
}

// readProcessEvents acts on the kernel's process events until it is closed.
func (f *replicaFollower) readProcessEvents() {
	for {
		pid, exited, err := f.kernel.processEvent()
		if errors.Is(err, ringbuf.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			f.log.Error("cannot read the kernel's process events; processes are found by scans only", "err", err)
			return
		}
		if exited {
			err = f.ended(pid)
		} else {
			err = f.consider(pid)
		}
		f.report(pid, err)
	}
}

// report logs what could not be followed, a few between two scans: others can start any number
// of programs named like ours.
func (f *replicaFollower) report(pid int, err error) {
	if err == nil {
		return
	}
	f.mu.Lock()
	f.logged++
	n := f.logged
	f.mu.Unlock()
	switch {
	case n < maxLogged:
		f.limitedLog.Warn("cannot follow a process", "pid", pid, "err", untrusted.Text(err.Error(), 512))
	case n == maxLogged:
		f.limitedLog.Warn("cannot follow further processes; see plumbline_replica_process_errors_total and plumbline_replica_processes_refused_total")
	}
}

func (f *replicaFollower) scanOften(ctx context.Context) {
	collector.Every(ctx, f.log, scanInterval, nil, func() {
		if err := f.scan(); err != nil {
			f.log.Warn("scan of processes", "err", err)
		}
	})
}

// scan reads all processes, and frees what has ended.
func (f *replicaFollower) scan() error {
	f.mu.Lock()
	f.logged = 0
	before := maps.Clone(f.byPID)
	f.mu.Unlock()
	pids, err := untrusted.Processes(f.options.ProcFS)
	if err != nil {
		return err
	}
	f.reader.waits.begin()
	there := map[int]bool{}
	for _, pid := range pids {
		there[pid] = true
	}
	for _, pid := range turns(pids, before) {
		f.report(pid, f.consider(pid))
	}
	f.following.Lock()
	defer f.following.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	for pid, n := range before { // those that came since were not scanned
		if !there[pid] && f.byPID[pid] == n {
			errs = append(errs, f.unfollow(pid))
		}
	}
	for pid := range f.rejected {
		if !there[pid] {
			delete(f.rejected, pid)
		}
	}
	return errors.Join(errs...)
}

// ended acts on the end of a process.
func (f *replicaFollower) ended(pid int) error {
	f.following.Lock()
	defer f.following.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.rejected, pid)
	return f.unfollow(pid)
}

// lockProcess waits until no other check of a process is under way, and keeps others out until unlock is called.
func (f *replicaFollower) lockProcess(pid int) (unlock func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.considered[pid] != nil {
		other := f.considered[pid]
		f.mu.Unlock()
		<-other
		f.mu.Lock()
	}
	mine := make(chan struct{})
	f.considered[pid] = mine
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.considered, pid)
		close(mine)
	}
}

// consider follows a process if it is an engine or a replica and not followed yet. It reads what the process itself
// provides before anybody else has to wait, as the process can delay that.
func (f *replicaFollower) consider(pid int) error {
	defer f.lockProcess(pid)()
	p, start, err := f.reader.read(pid)
	f.following.Lock()
	defer f.following.Unlock()
	if err != nil {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.reject(pid, start, err)
	}
	followed, err := f.admit(pid, start, p)
	if err != nil || !followed {
		return err
	}
	f.limitedLog.Info("following", "pid", pid, "backend", p.Backend, "role", roleName(p.Role), "volume", p.Volume, "instance", p.Instance)
	select {
	case f.unplaced <- struct{}{}:
	default: // it is awake
	}
	// If it ended before it was put into the map, the kernel has not taken it out again.
	if _, _, again, err := collector.ProcessStat(fmt.Sprintf("%s/%d", f.options.ProcFS, pid)); err != nil || again != start {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.unfollow(pid)
	}
	return nil
}

// reject counts a process that could not be understood, once, and returns what is to be logged of it. One that is left
// for the next scan is not counted.
func (f *replicaFollower) reject(pid int, start uint64, err error) error {
	if known, ok := f.rejected[pid]; ok && known == start {
		return nil
	}
	if errors.Is(err, errWaited) {
		if n := f.byPID[pid]; n != nil && n.start == start {
			return nil // it is followed already
		}
		return err // not examined, so that nothing is known against it
	}
	// The next scan retries one that did not answer.
	again := errors.Is(err, untrusted.ErrUnanswered) || errors.Is(err, untrusted.ErrTooMany)
	if !again && len(f.rejected) < maxRejected {
		f.rejected[pid] = start
	}
	if errors.Is(err, errNotRoot) {
		f.refused++
	} else {
		f.problems++
	}
	return err
}

// admit follows a process and reports whether it is a new one.
func (f *replicaFollower) admit(pid int, start uint64, p *replicaProcess) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if old := f.byPID[pid]; old != nil {
		if old.start == start && p != nil {
			return false, nil
		}
		if err := f.unfollow(pid); err != nil {
			return false, err
		}
	}
	if p == nil {
		return false, nil
	}
	if p.SyncAgent {
		if n := f.byPID[p.Parent]; n != nil && n.Role == bpf.Replica {
			n.agent, n.agentStart = pid, start
		}
		return false, nil
	}
	f.slot++
	n := &followedProcess{replicaProcess: *p, pid: pid, start: start, slot: f.slot, volume: f.volumeLabel(p.Volume)}
	f.lastSeen[operation.Labels{Volume: n.volume, Backend: n.Backend}] = time.Now()
	process := bpf.Process{Slot: n.slot, Role: uint8(p.Role)}
	if p.UnseenFrontend {
		process.UnseenFrontend = 1
	}
	if p.Role == bpf.Replica && !p.Unix {
		process.DataPort = f.wire.dataPort(p.Port)
	}
	f.byPID[pid], f.bySlot[n.slot] = n, n
	// The programs first, all of them: of what is seen to begin, the end must be seen, too.
	err := f.kernel.listen(f.need())
	if err == nil {
		err = f.kernel.follow(pid, process)
	}
	if err != nil {
		f.problems++
		delete(f.byPID, pid)
		delete(f.bySlot, n.slot)
		return false, errors.Join(err, f.kernel.listen(f.need()))
	}
	return true, nil
}

// unfollow stops following a process and keeps its counts.
func (f *replicaFollower) unfollow(pid int) error {
	n := f.byPID[pid]
	if n == nil {
		return nil
	}
	err := f.kernel.unfollow(pid)
	delete(f.byPID, pid)
	err = errors.Join(err, f.retire(n))
	delete(f.bySlot, n.slot)
	err = errors.Join(err, f.kernel.listen(f.need()))
	f.limitedLog.Info("no longer following", "pid", pid, "role", roleName(n.Role), "volume", n.Volume)
	return err
}

// need returns which programs the followed processes need.
func (f *replicaFollower) need() replicaNeed {
	need := always
	for _, n := range f.byPID {
		switch {
		case n.Role == bpf.Engine && n.Unix:
			return forLocal
		case n.Role == bpf.Engine:
			need = forEngines
		default:
			need = max(need, forProcesses)
		}
	}
	return need
}

func (f *replicaFollower) volumeLabel(volume string) string {
	if !f.volumes[volume] && len(f.volumes) >= operation.MaxVolumes {
		f.overflow++
		return "other"
	}
	f.volumes[volume] = true
	return volume
}

func roleName(r bpf.Role) string {
	if r == bpf.Engine {
		return "engine"
	}
	return "replica"
}
