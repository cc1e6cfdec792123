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
		paths: map[string]nvmeof.Path{}, totals: newReplicaTotals(), lastSeen: map[replicaLabels]time.Time{},
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
	// paths are the latest look's, by the kernel's name of the disk.
	paths map[string]nvmeof.Path
	// totals are the counts of paths and exports that are gone, and lastSeen when series were last in use.
	totals   *replicaTotals
	lastSeen map[replicaLabels]time.Time
	err      error // of the latest look at the paths
}

// Start implements Collector.
func (c *nvmeCollector) Start(ctx context.Context) error {
	ctx, c.stop = context.WithCancel(ctx)
	c.look()
	c.mu.Lock()
	err := errors.Join(c.initiator.err, c.target.err)
	c.mu.Unlock()
	if err != nil {
		return errors.Join(err, c.Close())
	}
	c.done.Go(func() { every(ctx, c.log, nvmeInterval, nil, c.look) })
	return nil
}

// look finds what there is to follow, attaches or detaches, and frees what is gone. What it reads of
// sysfs may wait for a controller, so that no lock is held meanwhile.
func (c *nvmeCollector) look() {
	controllers, err := nvmeof.ReadControllers(c.options.SysFS)
	serving := nvmeof.Serving(c.options.SysFS)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.paths = map[string]nvmeof.Path{}
	for _, p := range controllers.Paths {
		c.paths[p.Disk] = p
	}
	now := time.Now()
	c.initiator.need(err == nil && controllers.Remote > 0, now)
	c.target.need(serving, now)
	c.initiator.ignore(controllers.Local)
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
	// path is the initiator's, nqn, backing and device the target's.
	path                 nvmeof.Path
	nqn, backing, device string
	namespace            uint32
}

// viewPath is the initiator's view of a volume's target, on one path.
const viewPath = replica.View(100)
