package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/alecthomas/units"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

func (p *program) addCanary() {
	var (
		l        *load
		config   driver.Config
		arrivals string
		tables   bool
		servers  []string
		working  units.Base2Bytes
		down     string
	)
	c := p.add("canary", "Run loadgen's own open-loop load, without end: it waits for no answer to send the next transaction when it is due.",
		func(ctx context.Context, log *slog.Logger) error {
			config.Arrivals = driver.Arrivals(arrivals)
			if len(servers) > 0 {
				config.DSN, config.Others = servers[0], servers[1:]
			}
			config.Wait = down == "wait" || down == "auto" && len(servers) > 1
			if working > 0 {
				config.Scale = driver.ScaleFor(int64(working))
			}
			return p.runCanary(ctx, log, l, config, tables)
		},
		"loadgen canary --database=shop --storageclass=longhorn-r3 --rate=5 --dsn='host=127.0.0.1 dbname=shop'",
		"loadgen canary --engine=mysql --profile=wal-commit --dsn='shop@unix(/run/mysqld/mysqld.sock)/shop'",
		"loadgen canary --profile=write-mostly --working-set=64GiB --dsn='host=pg-1 dbname=shop' --dsn='host=pg-2 dbname=shop'",
		"loadgen canary --when-down=wait --json --once=5m --rate=50 --dsn='host=pg-1,pg-2 dbname=shop target_session_attrs=read-write'",
		"loadgen canary --rate=2000 --connections=8 --profile=kv-select --once=60s --dsn=shop",
		"loadgen canary --rate=100000 --generators=4 --generator=0 --once=10m --json --dsn=shop")
	l = addLoad(c, "canary")
	l.addGenerators(c)
	c.Flag("engine", "Database engine.").Default("postgres").EnumVar(&config.Engine, driver.Engines...)
	c.Flag("dsn", "Connection string: for PostgreSQL key=value pairs, a URL or a database name, completed from PGHOST, PGUSER and so on; for MySQL user:password@unix(/path)/database. Give it once for each server that the database may be at (in the variable, one a line): they are tried one after the other, and only one that can be written to is taken, unless a string has its own target_session_attrs.").
		Envar("LOADGEN_DSN").StringsVar(&servers)
	c.Flag("when-down", "While no server takes a connection, what is due fails at once or waits for one, so that it counts with the time that it waited; auto: wait with several --dsn, else fail.").
		Default("auto").EnumVar(&down, "auto", "fail", "wait")
	c.Flag("profile", "What a transaction does, and the label profile (on MySQL with -mysql): "+driver.ProfileNames()+".").Default("tpcb-like").StringVar(&config.Profile)
	c.Flag("rate", "Transactions per second to offer, by all generators.").Default("10").Float64Var(&config.Rate)
	c.Flag("arrivals", "Spread of the intended starts.").Default("poisson").EnumVar(&arrivals, "constant", "poisson")
	c.Flag("connections", "Transactions that may be under way at once.").Default("4").IntVar(&config.Connections)
	c.Flag("timeout", "A transaction that takes longer has failed.").Default("10s").DurationVar(&config.Timeout)
	c.Flag("latency-limit", "When all connections are busy, what is due waits; skip it if it is later than this when its turn comes (it counts as slow). 0: skip none.").
		Default("0s").DurationVar(&config.LatencyLimit)
	c.Flag("queue", "How many due transactions may wait for a connection; more are skipped.").Default("10000").IntVar(&config.Queue)
	c.Flag("seed", "Repeat the arrivals and keys of a run; 0: new ones each time.").Uint64Var(&config.Seed)
	c.Flag("init", "Make loadgen's tables first if they are missing.").Default("true").BoolVar(&tables)
	c.Flag("scale", "Size of the tables in units of 100,000 accounts, some 13 MB.").Default("1").IntVar(&config.Scale)
	c.Flag("working-set", "Size of the accounts on disk, such as 64GiB, instead of --scale; more than the memory of the database's node, and reads and writes reach the storage. Filled in batches; goes on where it was interrupted.").
		BytesVar(&working)
}

func (p *program) runCanary(ctx context.Context, log *slog.Logger, l *load, config driver.Config, tables bool) error {
	if err := l.divide(&config.Rate); err != nil {
		return err
	}
	if config.Seed != 0 {
		config.Seed += uint64(l.generator.Number) // else all would touch the same keys at the same moments
	}
	config.First = l.generator.Number * config.Connections
	l.labels.Profile = config.Label()
	l.options.Target = config.Rate
	config.Warmup = l.warmup
	load := metrics.NewSet(p.Registry).Load(l.labels, l.options)
	d, err := driver.New(config, load, driver.NewOwnMetrics(p.Registry), log)
	if err != nil {
		return err
	}
	retry := adapter.Supervisor{Load: load, Log: log, GiveUp: l.giveUp()}
	var failed error
	work := func(ctx context.Context) {
		if tables {
			load.SetPhase(metrics.Init)
			if l.generator.Number > 0 {
				failed = awaitTables(ctx, log, &retry, d)
			} else {
				failed = retry.Retry(ctx, "making loadgen's tables", d.Init)
			}
			if failed != nil {
				return
			}
		}
		d.Run(ctx)
	}
	err = p.run(ctx, log, l, load, work, func(r *result.Result) {
		generator, connections := d.Saturated()
		if generator {
			r.Notes = append(r.Notes, "the generator was saturated: it could not keep its schedule for lack of CPU")
		}
		if connections {
			r.Notes = append(r.Notes, "the connections were saturated: transactions waited for a free one")
		}
		addOutages(r, d)
	})
	return firstFailure(failed, err)
}

// awaitTables waits until generator 0 has made the tables, which may take hours. A server that is not there is no
// reason to wait.
func awaitTables(ctx context.Context, log *slog.Logger, retry *adapter.Supervisor, d *driver.Driver) error {
	for waited := 0; ; waited++ {
		ready := false
		err := retry.Retry(ctx, "looking for loadgen's tables", func(ctx context.Context) (err error) {
			ready, err = d.Ready(ctx)
			return err
		})
		if err != nil || ready {
			return err
		}
		if waited%30 == 0 {
			log.Info("waiting for loadgen's tables, which generator 0 makes")
		}
		if !adapter.Sleep(ctx, time.Second) {
			return ctx.Err()
		}
	}
}

// addOutages puts into a result the outages that reached into its time.
func addOutages(r *result.Result, d *driver.Driver) {
	all, after := d.Outages()
	for _, o := range all {
		if o.Began.Add(o.Took).Before(r.Began()) {
			continue
		}
		r.Outages = append(r.Outages, o.Result())
	}
	if len(r.Outages) > 0 && after.Count() > 0 {
		r.After(after)
	}
}
