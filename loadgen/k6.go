package main

import (
	"context"
	"fmt"
	"log/slog"
	"os/exec"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/adapter/k6"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

func (p *program) addK6() {
	var (
		l      *load
		config k6.Config
	)
	c := p.add("k6", "Run a SQL statement at a fixed rate with k6 and xk6-sql, without end. Service times only: k6 does not report how long an iteration waited.",
		func(ctx context.Context, log *slog.Logger) error { return p.runK6(ctx, log, l, config) },
		"loadgen k6 --storageclass=longhorn-r3 --rate=10 --dsn='host=127.0.0.1 dbname=shop sslmode=disable' --query='select count(*) from orders'",
		"loadgen k6 --engine=mysql --dsn='shop@tcp(127.0.0.1:3306)/shop' --remote-write=http://127.0.0.1:9090/api/v1/write")
	l = addLoad(c, "k6")
	l.addGenerators(c)
	c.Flag("path", "A k6 built with xk6-sql and its drivers for postgres and mysql.").Default("k6").StringVar(&config.Path)
	c.Flag("engine", "Database engine.").Default("postgres").EnumVar(&config.Engine, driver.Engines...)
	dsnFlag(c, "Connection string: for PostgreSQL key=value pairs, a URL or a database name, completed from PGHOST, PGUSER and so on; for MySQL user:password@tcp(host:port)/database.", &config.DSN)
	c.Flag("query", "Statement to run.").Default("select 1").StringVar(&config.Query)
	c.Flag("profile", "Value of the label profile.").Default("query").StringVar(&l.labels.Profile)
	c.Flag("rate", "Statements per second to offer, by all generators.").Default("10").Float64Var(&config.Rate)
	c.Flag("vus", "Statements that may be under way at once, of all generators; what is due beyond is dropped, and counts as skipped.").Default("10").IntVar(&config.VUs)
	c.Flag("remote-write", "Address to which k6 itself writes its own metrics, with stale markers.").StringVar(&config.RemoteWrite)
	c.Flag("work-dir", "Folder for a small file while k6 runs; the system's temporary folder if empty.").StringVar(&config.WorkDir)
}

func (p *program) runK6(ctx context.Context, log *slog.Logger, l *load, config k6.Config) error {
	if _, err := exec.LookPath(config.Path); err != nil {
		return fmt.Errorf("--path: k6 is missing: %w", err)
	}
	target := config.Rate
	if err := l.divide(&target); err != nil {
		return err
	}
	config.Generator, config.Generators = l.generator.Number, l.generator.Of
	l.options.Target, l.options.NoResponse = target, true
	load := metrics.NewSet(p.Registry).Load(l.labels, l.options)
	supervisor := &adapter.Supervisor{Load: load, Log: log, Rate: target, Warmup: l.warmup, GiveUp: l.giveUp()}
	tool, err := k6.New(config, load, log, supervisor.Up)
	if err != nil {
		return err
	}
	return p.runTool(ctx, log, l, supervisor, nil, tool.Once)
}
