package collector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/nvmeof"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// nvmeInterval is how often it is looked whether the machine uses or serves volumes over NVMe over
// Fabrics, and which.
const nvmeInterval = time.Second

// NVMeOptions are the collector nvme's own.
type NVMeOptions struct {
	// Names are further rules by which subsystems are named: nvmeof.Known.
	Names []string
}

// NewNVMe returns the collector of volumes over NVMe over Fabrics, for the kernel's initiator and target.
func NewNVMe(o Options) (Collector, error) {
	names, err := nvmeof.Known(o.NVMe.Names...)
	if err != nil {
		return nil, fmt.Errorf("--nvme.name: %w", err)
	}
	return newNVMe(o, names), nil
}

func newNVMe(o Options, names nvmeof.Names) *nvmeCollector {
	c := &nvmeCollector{
		log: o.Log.With("collector", "nvme"), options: o, names: names, clock: monotonic,
		paths: map[string]nvmeof.Path{}, down: map[string]time.Time{}, totals: newReplicaTotals(), lastSeen: map[replicaLabels]time.Time{},
	}
	c.initiator = &nvmeSide{nvmeCollector: c, name: "initiator", programs: initiatorPrograms, peers: map[uint32]*nvmePeer{}}
	c.target = &nvmeSide{nvmeCollector: c, name: "target", programs: targetPrograms, peers: map[uint32]*nvmePeer{}}
	return c
}

// nvmeCollector measures volumes over NVMe over Fabrics, on both ends. It attaches nothing as long as
// the machine neither uses nor serves one.
type nvmeCollector struct {
	log     *slog.Logger
	options Options
	names   nvmeof.Names
	// clock is the kernel's clock of the programs' times; tests let hours pass.
	clock func() uint64
	stop  context.CancelFunc
	done  sync.WaitGroup

	// mu guards the rest. Who holds it reads and writes memory and the kernel's maps only, except that
	// a side is loaded under it.
	mu                sync.Mutex
	initiator, target *nvmeSide
	// paths are the latest look's, by the kernel's name of the disk, local the machine's own disks, and down since when a path is
	// not usable.
	paths map[string]nvmeof.Path
	local map[string]bool
	down  map[string]time.Time
	// totals are the counts of paths and exports that are gone, and lastSeen when series were last in use.
	totals   *replicaTotals
	lastSeen map[replicaLabels]time.Time
	err      error // of the latest look at the paths
}

// Start implements Collector.
func (c *nvmeCollector) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	// A side that cannot be loaded is told of at each scrape, and does not take the other one along.
	c.look()
	c.done.Go(func() { every(ctx, c.log, nvmeInterval, nil, c.look) })
	return nil
}

// look finds what there is to follow, attaches or detaches, and frees what is gone. What it reads of
// sysfs may wait for a controller, so that no lock is held meanwhile.
func (c *nvmeCollector) look() {
	controllers, err := nvmeof.ReadControllers(c.options.SysFS)
	serving := nvmeof.Serving(c.options.SysFS)
	c.lookAtBackings()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	now := time.Now()
	if err == nil {
		c.local, c.paths = controllers.Local, map[string]nvmeof.Path{}
		for _, p := range controllers.Paths {
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
	c.initiator.need(err == nil && controllers.Remote > 0, now)
	c.target.need(serving, now)
	for _, side := range []*nvmeSide{c.initiator, c.target} {
		side.sweep(now)
	}
	for labels, seen := range c.lastSeen {
		if now.Sub(seen) >= replicaRetention {
			delete(c.lastSeen, labels)
			c.totals.forget(labels)
		}
	}
}

// lookAtBackings reads what the target's namespaces are made of, of new ones, and of all once a minute.
func (c *nvmeCollector) lookAtBackings() {
	type export struct {
		nqn       string
		namespace uint32
	}
	c.mu.Lock()
	todo := map[*nvmePeer]export{}
	for _, p := range c.target.peers {
		if time.Since(p.backing.at) >= time.Minute {
			todo[p] = export{p.nqn, p.namespace}
		}
	}
	c.mu.Unlock()
	for p, e := range todo {
		path, device := nvmeof.Backing(c.options.SysFS, e.nqn, e.namespace)
		c.mu.Lock()
		p.backing = nvmeBacking{path, device, time.Now()}
		c.mu.Unlock()
	}
}

// Update implements exporterkit.Collector.
func (c *nvmeCollector) Update(ch chan<- prometheus.Metric) error {
	metrics, err := c.collect()
	for _, m := range metrics {
		ch <- m
	}
	return err
}

// Check implements Collector.
func (c *nvmeCollector) Check() []exporterkit.CheckResult {
	c.mu.Lock()
	defer c.mu.Unlock()
	results := []exporterkit.CheckResult{{Part: "nvme: controllers", Err: c.err, Note: fmt.Sprintf("%d paths over a network", len(c.paths))}}
	for _, side := range []*nvmeSide{c.initiator, c.target} {
		note := "nothing to follow"
		if side.kernel != nil {
			note = fmt.Sprintf("%d followed", len(side.peers))
		}
		results = append(results, exporterkit.CheckResult{Part: "nvme: " + side.name, Err: side.err, Note: note, Optional: true})
	}
	return results
}

// Close implements Collector.
func (c *nvmeCollector) Close() error {
	if c.stop != nil {
		c.stop()
	}
	c.done.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, side := range []*nvmeSide{c.initiator, c.target} {
		if side.kernel != nil {
			errs = append(errs, side.kernel.Close())
			side.kernel = nil
		}
	}
	return errors.Join(errs...)
}

// nvmeMaxPeers bounds the paths and exports with series of their own; more share one name.
const nvmeMaxPeers = replicaMaxVolumes * 4

// nvmePeer is what a number of the programs stands for: a path, or an export.
type nvmePeer struct {
	viewLabels
	// path is the initiator's.
	path nvmeof.Path
	// The others are the target's; used is when the export was last in use.
	nqn       string
	namespace uint32
	backing   nvmeBacking
	used      time.Time
}

// nvmeBacking is what a namespace is made of, and when that was read.
type nvmeBacking struct {
	path, device string
	at           time.Time
}

// viewPath is the initiator's view of a volume's target, on one path.
const viewPath = replica.View(100)

// pathLabels name a path.
func (c *nvmeCollector) pathLabels(path nvmeof.Path) viewLabels {
	v := c.names.Of(path.NQN, path.Namespace)
	l := viewLabels{replicaLabels{v.Name, path.Address, v.Backend}, viewPath}
	if v.Replica != "" {
		l.View = replica.ViewRequest
	}
	return l
}
