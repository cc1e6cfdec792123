package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/adapter/pgbench"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

func (p *program) addPgbench() {
	var (
		l          *load
		config     pgbench.Config
		initialize bool
	)
	c := p.add("pgbench", "Run PostgreSQL's pgbench at a fixed rate, without end, and export every transaction.",
		func(ctx context.Context, log *slog.Logger) error {
			return p.runPgbench(ctx, log, l, config, initialize)
		},
		"loadgen pgbench --database=shop --storageclass=longhorn-r3 --rate=50 --init --scale=10 --dsn='host=127.0.0.1 dbname=shop'",
		"loadgen pgbench --rate=0 --clients=16 --builtin=select-only --once=60s --dsn=shop")
	l = addLoad(c, "pgbench")
	c.Flag("path", "The pgbench program.").Default("pgbench").StringVar(&config.Path)
	c.Flag("profile", "Value of the label profile; the name of the script if empty.").StringVar(&l.labels.Profile)
	dsnFlag(c, "PostgreSQL connection string, URL or database name; what it leaves open comes from PGHOST, PGUSER and so on.", &config.DSN)
	c.Flag("rate", "Transactions per second to offer; 0: as many as possible, without response times.").Default("50").Float64Var(&config.Rate)
	c.Flag("clients", "Connections.").Default("4").IntVar(&config.Clients)
	c.Flag("jobs", "Threads of pgbench.").Default("1").IntVar(&config.Jobs)
	c.Flag("protocol", "Query protocol.").Default("simple").EnumVar(&config.Protocol, "simple", "extended", "prepared")
	c.Flag("builtin", "pgbench's own script to run.").Default("tpcb-like").
		EnumVar(&config.Builtin, "tpcb-like", "simple-update", "select-only")
	c.Flag("script", "A pgbench script file to run instead.").ExistingFileVar(&config.Script)
	c.Flag("latency-limit", "Do not send a transaction that is already later than this; it counts as skipped, and as slow. 0: send all.").
		Default("0s").DurationVar(&config.LatencyLimit)
	c.Flag("max-tries", "How often a transaction is tried that fails to serialize.").Default("1").IntVar(&config.MaxTries)
	c.Flag("init", "Make pgbench's tables first if they are missing; loadgen's own of another scale are made afresh, others are refused.").BoolVar(&initialize)
	c.Flag("scale", "Scale factor for --init.").Default("10").IntVar(&config.Scale)
	c.Flag("work-dir", "Folder for a few links while pgbench runs; the system's temporary folder if empty.").StringVar(&config.WorkDir)
}

func (p *program) runPgbench(ctx context.Context, log *slog.Logger, l *load, config pgbench.Config, initialize bool) error {
	if config.Rate < 0 || config.Clients < 1 || config.Scale < 1 || config.MaxTries < 1 {
		return fmt.Errorf("--clients, --scale and --max-tries must be above 0, --rate not below")
	}
	if _, err := exec.LookPath(config.Path); err != nil {
		return fmt.Errorf("--path: pgbench is missing: %w", err)
	}
	if l.labels.Profile == "" {
		l.labels.Profile = config.Builtin
		if config.Script != "" {
			l.labels.Profile = "script"
		}
	}
	l.options.Target, l.options.NoResponse = config.Rate, config.Rate == 0
	load := metrics.NewSet(p.Registry).Load(l.labels, l.options)
	supervisor := &adapter.Supervisor{Load: load, Log: log, Rate: config.Rate, Warmup: l.warmup, GiveUp: l.giveUp()}
	tool, err := pgbench.New(config, load, log, supervisor.Up)
	if err != nil {
		return fmt.Errorf("--dsn: %w", err)
	}
	var tables func(context.Context) error
	if initialize {
		tables = tool.Init
	}
	return p.runTool(ctx, log, l, supervisor, tables, tool.Once)
}
