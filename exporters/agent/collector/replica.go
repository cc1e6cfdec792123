package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// replicaScanInterval is how often all processes are looked through. New ones are seen
	// at once by a notice from the kernel; this is for those that a notice missed.
	replicaScanInterval = 10 * time.Second
	// replicaRetention is how long the series of a replica without a connection, or of a
	// volume without a process, stay: long enough for the last values to be scraped.
	replicaRetention = 10 * time.Minute
	// replicaMaxVolumes bounds the values of the label volume; more are counted as "other".
	replicaMaxVolumes = 512
)

// NewReplica returns the collector of each replica's latency, for the storage engines
// whose wire is known.
func NewReplica(o Options) (Collector, error) {
	return newReplica(o, dataconnWire()), nil
}

func newReplica(o Options, wires ...replicaWire) *replicaCollector {
	c := &replicaCollector{log: o.Log.With("collector", "replica")}
	for _, w := range wires {
		c.wires = append(c.wires, &replicaFollower{
			log:      c.log.With("wire", w.name),
			wire:     w,
			options:  o,
			byPID:    map[int]*followedProcess{},
			bySlot:   map[uint32]*followedProcess{},
			strange:  map[int]bool{},
			volumes:  map[string]bool{},
			totals:   newReplicaTotals(),
			idle:     map[uint32]time.Time{},
			lastSeen: map[replicaLabels]time.Time{},
		})
	}
	return c
}

// replicaCollector measures the replicas of volumes, one follower for each wire.
type replicaCollector struct {
	log   *slog.Logger
	wires []*replicaFollower
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// Start implements Collector.
func (c *replicaCollector) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	for _, f := range c.wires {
		kernel, err := loadReplicaKernel(f.wire, f.options.ProcFS)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		f.kernel = kernel
		if err := f.scan(); err != nil {
			return errors.Join(err, c.Close())
		}
		c.done.Go(f.readNotices)
		c.done.Go(func() { f.scanOften(ctx) })
	}
	return nil
}

// Check implements Collector.
func (c *replicaCollector) Check() []exporterkit.CheckResult {
	var results []exporterkit.CheckResult
	for _, f := range c.wires {
		for _, h := range f.wire.hooks {
			r := exporterkit.CheckResult{Part: "replica: program " + h.program, Note: "tracepoint " + h.tracepoint, Optional: h.optional}
			if f.kernel.missing[h.program] {
				r.Err = errors.New("the kernel has no tracepoint " + h.tracepoint)
				r.Note = "another program takes its place"
			}
			results = append(results, r)
		}
		f.mu.Lock()
		results = append(results, exporterkit.CheckResult{Part: "replica: wire " + f.wire.name, Note: fmt.Sprintf("%d engines and replicas found", len(f.byPID))})
		for pid := range f.byPID {
			if _, err := openSockets(f.options.ProcFS, pid); err != nil {
				results = append(results, exporterkit.CheckResult{Part: fmt.Sprintf("replica: sockets of process %d", pid), Err: fmt.Errorf("%w (needs CAP_SYS_PTRACE)", err), Optional: true,
					Note: "its closed connections are forgotten only when they break or it ends"})
			}
		}
		f.mu.Unlock()
	}
	return results
}

// Close implements Collector.
func (c *replicaCollector) Close() error {
	if c.stop != nil {
		c.stop()
	}
	var errs []error
	for _, f := range c.wires {
		if f.kernel != nil {
			errs = append(errs, f.kernel.Close())
		}
	}
	c.done.Wait()
	return errors.Join(errs...)
}

// replicaFollower follows the processes of one wire and keeps what they leave behind.
type replicaFollower struct {
	log     *slog.Logger
	wire    replicaWire
	options Options
	kernel  *replicaKernel

	mu     sync.Mutex
	slot   uint32
	byPID  map[int]*followedProcess
	bySlot map[uint32]*followedProcess
	// strange holds processes that could not be understood, so that each is told of once.
	strange map[int]bool
	// volumes are the values of the label volume in use.
	volumes map[string]bool
	// totals are the counts of connections and processes that are gone.
	totals *replicaTotals
	// idle says since when a peer has no connection.
	idle     map[uint32]time.Time
	lastSeen map[replicaLabels]time.Time
	problems uint64 // processes that could not be followed
	overflow uint64 // processes counted under volume "other"
	resynced uint64 // operations void because their connection fell out of step
	expired  uint64 // writes whose end was not seen
}

// followedProcess is an engine or replica that the kernel side looks at.
type followedProcess struct {
	replicaProcess
	pid    int
	start  uint64
	slot   uint32
	volume string // the label, which may be "other"
	peers  uint32
}

// readNotices acts on the kernel's notices until it is closed.
func (f *replicaFollower) readNotices() {
	for {
		pid, exited, err := f.kernel.notice()
		if errors.Is(err, ringbuf.ErrClosed) || errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil {
			f.log.Error("cannot read the kernel's notices; processes are found by scans only", "err", err)
			return
		}
		f.mu.Lock()
		if exited {
			err = f.leave(pid)
		} else {
			err = f.consider(pid)
		}
		f.mu.Unlock()
		if err != nil {
			f.log.Warn("process notice", "pid", pid, "err", err)
		}
	}
}

func (f *replicaFollower) scanOften(ctx context.Context) {
	tick := time.NewTicker(replicaScanInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := f.scan(); err != nil {
			f.log.Warn("scan of processes", "err", err)
		}
	}
}

// scan looks through all processes, and frees what has ended.
func (f *replicaFollower) scan() error {
	entries, err := os.ReadDir(f.options.ProcFS)
	if err != nil {
		return fmt.Errorf("procfs: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	there := map[int]bool{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		there[pid] = true
		errs = append(errs, f.consider(pid))
	}
	for pid := range f.byPID {
		if !there[pid] {
			errs = append(errs, f.leave(pid))
		}
	}
	for pid := range f.strange {
		if !there[pid] {
			delete(f.strange, pid)
		}
	}
	if _, err := f.sweep(time.Now()); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// consider follows a process if it is an engine or a replica and not followed yet.
func (f *replicaFollower) consider(pid int) error {
	p, start, err := readReplicaProcess(f.options.ProcFS, pid, f.wire.recognise)
	if err != nil {
		if f.strange[pid] {
			return nil
		}
		f.strange[pid] = true
		f.problems++
		return err
	}
	if old := f.byPID[pid]; old != nil {
		if old.start == start && p != nil {
			return nil
		}
		if err := f.leave(pid); err != nil {
			return err
		}
	}
	if p == nil {
		return nil
	}
	f.slot++
	n := &followedProcess{replicaProcess: *p, pid: pid, start: start, slot: f.slot, volume: f.volumeLabel(p.Volume)}
	process := replica.Process{Slot: n.slot, Role: uint8(p.Role)}
	if p.UnseenFrontend {
		process.UnseenFrontend = 1
	}
	if p.Role == replica.Replica && !p.Unix {
		process.DataPort = f.wire.dataPort(p.Port)
	}
	if err := f.kernel.follow(pid, process); err != nil {
		f.problems++
		return err
	}
	f.byPID[pid], f.bySlot[n.slot] = n, n
	if err := f.kernel.listen(f.need()); err != nil {
		f.problems++
		return err
	}
	// If it ended before it was put into the map, the kernel has not taken it out again.
	if again, err := startTicks(fmt.Sprintf("%s/%d", f.options.ProcFS, pid)); err != nil || again != start {
		return f.leave(pid)
	}
	f.log.Info("following", "pid", pid, "backend", p.Backend, "role", roleName(p.Role), "volume", p.Volume, "instance", p.Instance)
	return nil
}

// leave stops following a process and keeps its counts.
func (f *replicaFollower) leave(pid int) error {
	n := f.byPID[pid]
	if n == nil {
		return nil
	}
	err := f.kernel.unfollow(pid)
	delete(f.byPID, pid)
	err = errors.Join(err, f.retire(n))
	delete(f.bySlot, n.slot)
	err = errors.Join(err, f.kernel.listen(f.need()))
	f.log.Info("no longer following", "pid", pid, "role", roleName(n.Role), "volume", n.Volume)
	return err
}

// need says which programs the followed processes ask for.
func (f *replicaFollower) need() replicaNeed {
	need := always
	for _, n := range f.byPID {
		switch {
		case n.Role == replica.Engine && n.Unix:
			return forLocal
		case n.Role == replica.Engine:
			need = forEngines
		default:
			need = max(need, forProcesses)
		}
	}
	return need
}

func (f *replicaFollower) volumeLabel(volume string) string {
	if !f.volumes[volume] && len(f.volumes) >= replicaMaxVolumes {
		f.overflow++
		return "other"
	}
	f.volumes[volume] = true
	return volume
}

func roleName(r replica.Role) string {
	if r == replica.Engine {
		return "engine"
	}
	return "replica"
}
