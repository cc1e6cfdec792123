package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/debug"
	"time"

	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/matrix"
)

func (p *program) addBaseline() {
	var (
		config                    baseline.Config
		targets, output, arrivals string
	)
	c := p.add("baseline", "Measure storage classes while all is well, and write the rules file that pins it for the alerts.",
		func(ctx context.Context, log *slog.Logger) error {
			config.Driver.Arrivals = driver.Arrivals(arrivals)
			return runBaseline(ctx, log, config, targets, output)
		},
		"loadgen baseline --targets=targets.yaml --output=rules/baseline.rules.yaml",
		"loadgen baseline --targets=targets.yaml --profile=wal-commit --rate=5 --duration=30m --output=baseline.rules.yaml")
	c.Flag("targets", "YAML file with the storage classes: targets, each with storageclass, dsn, engine, replicas.").Required().StringVar(&targets)
	c.Flag("output", "Rules file to write.").Required().StringVar(&output)
	c.Flag("profile", "The canary's profile: "+driver.ProfileNames()+".").Default("tpcb-like").StringVar(&config.Driver.Profile)
	c.Flag("rate", "The canary's rate, in transactions per second.").Default("10").Float64Var(&config.Driver.Rate)
	c.Flag("arrivals", "The canary's arrivals.").Default("poisson").EnumVar(&arrivals, "constant", "poisson")
	c.Flag("connections", "The canary's connections.").Default("4").IntVar(&config.Driver.Connections)
	c.Flag("timeout", "The canary's time-out.").Default("10s").DurationVar(&config.Driver.Timeout)
	c.Flag("queue", "The canary's queue.").Default("10000").IntVar(&config.Driver.Queue)
	c.Flag("scale", "The canary's scale.").Default("1").IntVar(&config.Driver.Scale)
	c.Flag("warmup", "Warm-up before the measurement.").Default("30s").DurationVar(&config.Driver.Warmup)
	c.Flag("duration", "Measure at least this long.").Default("10m").DurationVar(&config.Least)
	c.Flag("max-duration", "Measure at most this long.").Default("1h").DurationVar(&config.Most)
	c.Flag("precision", "Measure until the 95th percentile is known to this share of itself, with 95 % confidence.").Default("0.05").Float64Var(&config.Precision)
	c.Flag("force", "Write the file even if failures or lack of CPU spoilt the run; it is said in the file.").BoolVar(&config.Force)
}

func runBaseline(ctx context.Context, log *slog.Logger, config baseline.Config, targets, output string) error {
	classes, err := matrix.ReadTargets(targets)
	if err != nil {
		return err
	}
	found, err := baseline.Measure(ctx, config, classes, log)
	if err != nil {
		return err
	}
	// Prometheus may read the file at any time: it must never see half of it.
	file, err := os.CreateTemp(filepath.Dir(output), ".baseline-*")
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	defer os.Remove(file.Name())
	version := "loadgen"
	if info, ok := debug.ReadBuildInfo(); ok {
		version += " " + info.Main.Version + " " + info.GoVersion
	}
	if err := baseline.WriteRules(file, found, version, time.Now()); err != nil {
		file.Close()
		return err
	}
	if err := file.Chmod(0o644); err != nil {
		file.Close()
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	return os.Rename(file.Name(), output)
}
