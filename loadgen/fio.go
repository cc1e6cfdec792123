package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/adapter/fio"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

func (p *program) addFio() {
	var (
		l      *load
		config fio.Config
		keep   bool
	)
	c := p.add("fio", "Run fio on a directory, without end, and export its latencies. Service times only: fio does not report when an I/O was meant to start.",
		func(ctx context.Context, log *slog.Logger) error {
			return p.runFio(ctx, log, l, config, keep)
		},
		"loadgen fio --storageclass=longhorn-r3 --directory=/srv/r3 --rw=write --fdatasync=1 --rate=50",
		"loadgen fio --directory=/srv/r3 --rw=randread --bs=4k --iodepth=64 --rate=0 --once=60s")
	l = addLoad(c, "fio")
	c.Flag("path", "The fio program.").Default("fio").StringVar(&config.Path)
	c.Flag("directory", "Directory on the storage to be tried; the files made there are removed at the end.").Required().StringVar(&config.Directory)
	c.Flag("profile", "Value of the label profile; made of the job's settings if empty. Sync calls get a second one, with -fdatasync added.").StringVar(&l.labels.Profile)
	c.Flag("rw", "fio's rw: what to do.").Default("randwrite").EnumVar(&config.RW, "read", "write", "randread", "randwrite", "rw", "randrw")
	c.Flag("bs", "fio's bs: the size of an I/O.").Default("8k").StringVar(&config.BlockSize)
	c.Flag("size", "fio's size: how much space each job works on.").Default("256m").StringVar(&config.Size)
	c.Flag("ioengine", "fio's ioengine.").Default("libaio").StringVar(&config.Engine)
	c.Flag("iodepth", "fio's iodepth: I/Os under way in each job.").Default("1").IntVar(&config.IODepth)
	c.Flag("jobs", "fio's numjobs.").Default("1").IntVar(&config.Jobs)
	c.Flag("buffered", "Go through the page cache.").BoolVar(&config.Buffered)
	c.Flag("fdatasync", "Sync after each so many writes; 0: never.").Default("0").IntVar(&config.Fdatasync)
	c.Flag("rate", "I/Os per second to offer, in each direction; 0: as many as possible.").Default("50").Float64Var(&config.Rate)
	c.Flag("keep-files", "Leave the files for the next run.").BoolVar(&keep)
}

func (p *program) runFio(ctx context.Context, log *slog.Logger, l *load, config fio.Config, keep bool) error {
	if config.Rate < 0 || config.IODepth < 1 || config.Jobs < 1 || config.Fdatasync < 0 {
		return fmt.Errorf("--iodepth and --jobs must be above 0, --rate and --fdatasync not below")
	}
	if _, err := exec.LookPath(config.Path); err != nil {
		return fmt.Errorf("--path: fio is missing: %w", err)
	}
	if l.labels.Profile == "" {
		l.labels.Profile = config.Profile()
	}
	l.options.Target, l.options.NoResponse = config.Offered(), true
	set := metrics.NewSet(p.Registry)
	supervisor := &adapter.Supervisor{Load: set.Load(l.labels, l.options), Log: log, Rate: config.Offered(), Warmup: l.warmup, GiveUp: l.giveUp()}
	var syncs *metrics.Load
	if config.Fdatasync > 0 {
		labels := l.labels
		labels.Profile += "-fdatasync"
		syncs = set.Load(labels, metrics.Options{NoResponse: true})
		supervisor.Beside = append(supervisor.Beside, syncs)
	}
	tool, err := fio.New(config, supervisor.Load, syncs, log, supervisor.Up)
	if err != nil {
		return err
	}
	if !keep {
		defer func() {
			if err := tool.Cleanup(); err != nil {
				log.Error("fio's files could not be removed", "err", err)
			}
		}()
	}
	return p.runTool(ctx, log, l, supervisor, nil, tool.Once)
}
