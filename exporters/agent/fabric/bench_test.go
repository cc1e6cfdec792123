package fabric

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/loadgen/stats"
	"github.com/plumbline/plumbline/tests/paired"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

var fabricBlocks = flag.Int("fabric.blocks", 60, "how often BenchmarkFabric compares")

// fabricNetwork is a storage network of one target on this machine, in its own kernel or in user space.
type fabricNetwork struct {
	name, title string
	open        func(collector.Options, Options) (collector.Collector, error)
	connect     func(b *testing.B) (device string)
	userTarget  bool // the target is in user space
}

var networks = []fabricNetwork{
	{"nvme", "NVMe over Fabrics", NewNVMe, func(b *testing.B) string {
		return rig.NVMeHead(rig.NewNVMeTargets(b, []string{"nqn.2023-01.io.longhorn.spdk:bench-r-00"}, nil).Connect()[0])
	}, false},
	{"iscsi", "iSCSI", NewISCSI, func(b *testing.B) string {
		return "/dev/" + filepath.Base(rig.NewISCSITargets(b, []string{"iqn.2026-11.io.plumbline:bench"}, nil).Connect()[0])
	}, false},
	{"iscsi-user", "iSCSI to tgt", NewISCSI, func(b *testing.B) string {
		return "/dev/" + filepath.Base(rig.NewUserISCSITargets(b, "iqn.2026-11.io.plumbline:tgt", "iqn.2026-11.io.plumbline:istgt", 0).ConnectTo(0))
	}, true},
}

// fabricLoad is the load on its disk.
type fabricLoad struct {
	fabricNetwork
	collector *fabricCollector
	done      atomic.Uint64
}

// What following each wire costs, at the initiator's end and the target's, which are one machine's: writes per second
// of a disk over it with the programs attached and without them, in turns, beside the same comparison of nothing with
// itself. It takes the kernel's targets for its own, so it runs in a guest only:
//
//	kernels boot 6.12 -- /tmp/fabric.test -test.run '^$' -test.bench Fabric -test.benchtime 1x -test.v -bench.results=/run/host
func BenchmarkFabric(b *testing.B) {
	testkit.NeedBPF(b)
	if _, err := os.Stat("/run/host/booted"); err != nil {
		b.Skip("runs in a guest of tests/kernels: ", err)
	}
	for _, n := range networks {
		b.Run(n.name, func(b *testing.B) { benchFabric(b, n) })
	}
}

func benchFabric(b *testing.B, n fabricNetwork) {
	device := n.connect(b)
	c, err := n.open(collector.Options{Log: slog.New(slog.DiscardHandler), Node: "guest", SysFS: "/sys", ProcFS: "/proc"}, Options{})
	if err != nil {
		b.Fatal(err)
	}
	l := &fabricLoad{fabricNetwork: n, collector: c.(*fabricCollector)}
	b.Cleanup(func() {
		if err := c.Close(); err != nil {
			b.Error(err)
		}
	})
	l.collector.scan()
	for _, side := range l.sides() {
		if side.kernel == nil {
			b.Fatalf("the %s is not followed: %v", side.name, side.err)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	writers, ctx := errgroup.WithContext(ctx)
	for i := range 2 {
		writers.Go(func() error { return l.write(ctx, device, int64(i)) })
	}
	for b.Loop() {
		l.compare(ctx, b)
	}
	stop()
	if err := writers.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		b.Fatal(err)
	}
}

func (l *fabricLoad) sides() []*fabricSide {
	if l.userTarget {
		return []*fabricSide{l.collector.initiator, l.collector.userTargets.fabricSide}
	}
	return []*fabricSide{l.collector.initiator, l.collector.target}
}

// write writes the same block of a disk over and over, past the page cache.
func (l *fabricLoad) write(ctx context.Context, device string, block int64) error {
	return rig.Direct(device, func(f *os.File, page []byte) error {
		for ctx.Err() == nil {
			if _, err := f.WriteAt(page, block*rig.BlockSize); err != nil {
				return err
			}
			l.done.Add(1)
		}
		return ctx.Err()
	})
}

// follow attaches the programs of both sides, or detaches them.
func (l *fabricLoad) follow(on bool) error {
	var errs []error
	for _, side := range l.sides() {
		errs = append(errs, side.kernel.detach()...)
		if on {
			errs = append(errs, side.kernel.attach())
		}
	}
	return errors.Join(errs...)
}

func (l *fabricLoad) compare(ctx context.Context, b *testing.B) {
	var modes []paired.Mode
	for _, name := range []string{"nothing", "nothing again", "followed"} {
		modes = append(modes, paired.Mode{Name: name, Enter: func() error { return l.follow(name == "followed") }})
	}
	written := func() (float64, error) { return float64(l.done.Load()), ctx.Err() }
	rates := make([][]float64, len(modes))
	for range *fabricBlocks {
		block, err := paired.Run(ctx, modes, []paired.Meter{written}, paired.Times{Settle: 100 * time.Millisecond, Measure: time.Second})
		if err != nil {
			b.Fatal(err)
		}
		for i, slot := range block {
			rates[i] = append(rates[i], slot.Used[0]/slot.To.Sub(slot.From).Seconds())
		}
	}
	floor, ok := stats.Paired(rates[0], rates[1], collectortest.OneSided)
	cost, also := stats.Paired(rates[0], rates[2], collectortest.OneSided)
	if !ok || !also {
		b.Fatalf("too few blocks: %v", rates)
	}
	b.ReportMetric(cost.Ratio, "ratio")
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		b.Fatal(err)
	}
	file, err := rows.Open(*collectortest.ResultsFolder, "fabricbench-"+l.name, "make bench-wires")
	if err != nil {
		b.Fatal(err)
	}
	cells := []string{"figure", fmt.Sprintf("%.3f, at least %.3f", cost.Ratio, cost.Low), "nothing to itself", fmt.Sprintf("%.3f to %.3f", floor.Low, floor.High),
		"writes/s without", fmt.Sprintf("%.0f", rows.Median(rates[0])), "blocks", fmt.Sprint(len(rates[0])), "kernel", unix.ByteSliceToString(release.Release[:])}
	what := fmt.Sprintf("writes/s over %s, both ends followed to none, in an emulated guest", l.title)
	b.Log(what, cells)
	file.Add("Overhead: storage networks", what, cells...)
	if err := file.Close(); err != nil {
		b.Fatal(err)
	}
}
