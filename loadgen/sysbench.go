package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/adapter/sysbench"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

func (p *program) addSysbench() {
	var (
		l      *load
		config sysbench.Config
		tables bool
	)
	c := p.add("sysbench", "Run sysbench's database tests at a fixed rate, without end, and export every event.",
		func(ctx context.Context, log *slog.Logger) error {
			return p.runSysbench(ctx, log, l, config, tables)
		},
		"loadgen sysbench --database=shop --storageclass=longhorn-r3 --rate=20 --init --dsn='host=127.0.0.1 dbname=shop'",
		"loadgen sysbench --engine=mysql --script=oltp_write_only --once=60s --json --dsn='shop@unix(/run/mysqld/mysqld.sock)/shop'")
	l = addLoad(c, "sysbench")
	c.Flag("path", "The sysbench program.").Default("sysbench").StringVar(&config.Path)
	c.Flag("engine", "Database engine.").Default("postgres").EnumVar(&config.Target.Engine, driver.Engines...)
	dsnFlag(c, "Connection string: for PostgreSQL key=value pairs, a URL or a database name, completed from PGHOST, PGUSER and so on; for MySQL user:password@unix(/path)/database.", &config.Target.DSN)
	c.Flag("script", "sysbench's test to run.").Default("oltp_read_write").EnumVar(&config.Script, sysbench.Scripts...)
	c.Flag("rate", "Events per second to offer; 0: as many as possible, without response times.").Default("20").Float64Var(&config.Rate)
	c.Flag("threads", "Threads, each with a connection.").Default("4").IntVar(&config.Threads)
	c.Flag("tables", "Tables.").Default("1").IntVar(&config.Tables)
	c.Flag("table-size", "Rows of each table.").Default("10000").IntVar(&config.TableSize)
	c.Flag("init", "Make sysbench's tables first if they are missing; loadgen's own of another size are made afresh, others are refused.").BoolVar(&tables)
	c.Flag("work-dir", "Folder for a few small files while sysbench runs; the system's temporary folder if empty.").StringVar(&config.WorkDir)
}

func (p *program) runSysbench(ctx context.Context, log *slog.Logger, l *load, config sysbench.Config, tables bool) error {
	if config.Rate < 0 || config.Threads < 1 || config.Tables < 1 || config.TableSize < 1 {
		return fmt.Errorf("--threads, --tables and --table-size must be above 0, --rate not below")
	}
	if _, err := exec.LookPath(config.Path); err != nil {
		return fmt.Errorf("--path: sysbench is missing: %w", err)
	}
	l.labels.Profile, l.options.Target, l.options.NoResponse = config.Script, config.Rate, config.Rate == 0
	load := metrics.NewSet(p.Registry).Load(l.labels, l.options)
	supervisor := &adapter.Supervisor{Load: load, Log: log, Rate: config.Rate, Warmup: l.warmup, GiveUp: l.giveUp()}
	tool, err := sysbench.New(config, load, log, supervisor.Up)
	if err != nil {
		return err
	}
	var initialize func(context.Context) error
	if tables {
		initialize = tool.Init
	}
	return p.runTool(ctx, log, l, supervisor, initialize, tool.Once)
}
