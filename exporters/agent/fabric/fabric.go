// Package fabric holds the collectors "nvme" and "iscsi" of volumes over a storage network: each path of an initiator, and
// targets in the kernel and in user space.
package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/remote"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// interval is how often the collector scans for volumes that the machine uses or serves over a network.
const interval = time.Second

// Options are the own ones of a collector of a storage network.
type Options struct {
	// Names are further rules that name what is served: remote.NVMe, remote.ISCSI.
	Names []string
	// UserTargets are the names of further programs that are targets in user space.
	UserTargets []string
}

// fabricWire is a storage network whose operations the kernel itself reports, at its initiator and at its target.
type fabricWire struct {
	// name is the collector's, and title what people call the network.
	name, title string
	// load returns the programs of both sides, which have initiator's and target's names.
	load              func() (*ebpf.CollectionSpec, error)
	initiator, target []fabricProgram
	// modules are the kernel's for both sides, without which there is nothing to follow.
	initiatorModule, targetModule string
	// read finds what the machine uses, serving whether it can serve anybody.
	read    func(sysfs string, known *remote.Known) (remote.Paths, error)
	serving func(sysfs string) bool
	// export fills in how the target itself names an export and returns the address where it is served; backing is what
	// it is made of.
	export  func(key *bpf.ExportKey, e *bpf.Export, p *fabricPeer) (address string)
	backing func(procfs, sysfs string, p *fabricPeer) remote.Backing
	// userTarget is the wire's target in user space; nil if none is followed.
	userTarget *fabricUserTarget
	// aborts is true if the target ends operations that the initiator aborts, which nothing reports, and if an idle
	// initiator sends nothing.
	aborts bool
}

// newFabric returns a collector of volumes over a network, for the kernel's initiator and target.
func newFabric(o collector.Options, wire fabricWire, names remote.Names) *fabricCollector {
	c := &fabricCollector{
		log: o.Log.With("collector", wire.name), options: o, wire: wire, names: names, clock: collector.Monotonic,
		paths: map[string]remote.Path{}, down: map[string]time.Time{}, totals: operation.NewTotals(), lastSeen: map[operation.Labels]time.Time{},
	}
	c.initiator = newSide(c, "initiator", operation.ViewPath)
	c.initiator.ofModule(wire.initiator, wire.initiatorModule, c.initiator.sweepDisks)
	c.target = newSide(c, "target", operation.ViewFrontend)
	c.target.ofModule(wire.target, wire.targetModule, c.target.sweepExports)
	c.sides = []*fabricSide{c.initiator, c.target}
	if wire.userTarget != nil {
		c.userTargets = newUserTargets(c)
		c.sides = append(c.sides, c.userTargets.fabricSide)
	}
	return c
}

// fabricCollector measures volumes over a storage network, on both ends. It attaches nothing as long as
// the machine neither uses nor serves one.
type fabricCollector struct {
	log     *slog.Logger
	options collector.Options
	wire    fabricWire
	names   remote.Names
	// clock is the kernel's clock of the programs' times; tests let hours pass.
	clock func() uint64
	stop  context.CancelFunc
	done  sync.WaitGroup
	// known is of the scans, which come one after another.
	known remote.Known

	// mu guards the rest. Its holder reads and writes memory and the kernel's maps only, except that a side is loaded
	// under it.
	mu                sync.Mutex
	initiator, target *fabricSide
	// userTargets are the targets in user space; nil if the wire has none that is followed. sides are all.
	userTargets *fabricUserTargets
	sides       []*fabricSide
	// paths are the latest scan's, by the kernel's name of the disk, local the machine's own disks by their sequence,
	// and down since when a path is not usable.
	paths map[string]remote.Path
	// unread is how many of its disks have a form in sysfs that is not understood.
	unread int
	local  map[uint64]bool
	down   map[string]time.Time
	// totals are the counts of paths and exports that are gone, and lastSeen when series were last in use.
	totals     *operation.Totals
	operations operation.Seen
	lastSeen   map[operation.Labels]time.Time
	err        error // of the latest read of the paths
}

// Start implements Collector.
func (c *fabricCollector) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	// Each scrape reports a side that cannot be loaded, which does not take the other one along.
	c.scan()
	c.done.Go(func() { collector.Every(ctx, c.log, interval, nil, c.scan) })
	return nil
}

// scan finds what there is to follow, attaches or detaches, and frees what is gone. It holds no lock while it reads. A
// read of sysfs may wait for a controller. A list of a process's sockets takes longer the more files the process has
// open.
func (c *fabricCollector) scan() {
	found, err := c.wire.read(c.options.SysFS, &c.known)
	serving := c.wire.serving(c.options.SysFS)
	c.readBackings()
	if c.userTargets != nil {
		c.userTargets.find()
	}
	c.settle(found, err, serving)
	if c.userTargets != nil {
		c.userTargets.begin()
	}
}

// settle acts on what a scan has found of the machine's paths, err is why it has not, and on whether it can serve
// anybody.
func (c *fabricCollector) settle(found remote.Paths, err error, serving bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	now := time.Now()
	if err == nil {
		c.local, c.unread, c.paths = found.Local, found.Unread, map[string]remote.Path{}
		for _, p := range found.Paths {
			c.paths[p.Disk] = p
		}
	}
	for disk := range c.down {
		if p, ok := c.paths[disk]; !ok || p.Usable() {
			delete(c.down, disk)
		}
	}
	for disk, p := range c.paths {
		if _, ok := c.down[disk]; !ok && !p.Usable() {
			c.down[disk] = now
		}
	}
	c.initiator.need(err == nil && found.Connections > 0, now)
	c.target.need(serving, now)
	if c.userTargets != nil {
		c.userTargets.follow(now)
	}
	for _, side := range c.sides {
		side.sweep(now)
	}
	for labels, seen := range c.lastSeen {
		if now.Sub(seen) >= operation.Retention {
			delete(c.lastSeen, labels)
			c.totals.Forget(labels)
		}
	}
}

// readBackings reads what the target's namespaces are made of: of new ones, of those with an operation that gets old,
// and of all once a minute.
func (c *fabricCollector) readBackings() {
	c.mu.Lock()
	todo := map[*fabricPeer]fabricPeer{}
	for _, p := range c.target.peers {
		if p.old || time.Since(p.read) >= time.Minute {
			todo[p] = *p
		}
	}
	c.mu.Unlock()
	for p, export := range todo {
		b := c.wire.backing(c.options.ProcFS, c.options.SysFS, &export)
		c.mu.Lock()
		p.backing, p.read = b, time.Now()
		c.mu.Unlock()
	}
}

// Update implements exporterkit.Collector.
func (c *fabricCollector) Update(ch chan<- prometheus.Metric) error {
	metrics, err := c.collect()
	for _, m := range metrics {
		ch <- m
	}
	c.mu.Lock()
	unread := c.unread
	c.mu.Unlock()
	collector.SendUnidentified(ch, c.options.Node, collector.KindPath, map[string]int{c.wire.name: unread})
	return err
}

// Check implements Collector.
func (c *fabricCollector) Check() []exporterkit.CheckResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	results := []exporterkit.CheckResult{{Part: c.wire.name + ": paths", Err: c.err, Note: fmt.Sprintf("%d over a network", len(c.paths))}}
	for _, side := range c.sides {
		results = append(results, side.check())
	}
	return results
}

// Close implements Collector.
func (c *fabricCollector) Close() error {
	if c.stop != nil {
		c.stop()
	}
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, side := range c.sides {
		if side.kernel != nil {
			errs = append(errs, side.kernel.Close())
			side.kernel = nil
		}
	}
	return errors.Join(errs...)
}

// maxPeers bounds the paths and exports with series of their own; more share one name.
const maxPeers = operation.MaxVolumes * 4

// fabricPeer is what a number of the programs stands for: a path, or an export.
type fabricPeer struct {
	operation.ViewLabels
	// path is the initiator's, and left when it was first gone from sysfs, by the collector's clock; 0 if it is there.
	path remote.Path
	left uint64
	// The others are the target's: the subsystem and the namespace's number in it, of iSCSI the target, its portal
	// group and the target's own number of the LUN.
	subsystem, group string
	number           uint32
	// backing is as of read, used when the export was last in use, and old is true if it has an operation that may be
	// void.
	backing    remote.Backing
	read, used time.Time
	old        bool
}

// stays reports whether a path that is gone from sysfs may still be used: for a while in any case, and as long as an
// operation is under way whose answer may come. The kernel's last count of operations under way is stale by then.
func (p *fabricPeer) stays(busy bool, clock uint64) bool {
	if p.left == 0 {
		p.left = clock
	}
	p.path.CountsInFlight = false
	gone := time.Duration(clock - min(p.left, clock))
	return gone < pathRemovalDelay || busy && gone < keepAliveTimeout
}

// pathLabels name a path.
func (c *fabricCollector) pathLabels(path remote.Path) operation.ViewLabels {
	v := c.names.OfPath(path)
	l := operation.ViewLabels{Labels: operation.Labels{Volume: v.Name, Replica: path.Address, Backend: v.Backend}, View: operation.ViewPath}
	if v.Replica != "" {
		l.View = operation.ViewRequest
	}
	return l
}
