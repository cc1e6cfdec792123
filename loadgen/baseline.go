package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime/debug"
	"time"

	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/loadgen/baseline"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/internal/outfile"
	"github.com/plumbline/plumbline/loadgen/matrix"
)

// baselineRun is the command line of `loadgen baseline`.
type baselineRun struct {
	config                   baseline.Config
	targets                  string
	one                      matrix.Target
	over                     time.Duration
	file, object, kubeconfig string
	record                   string
	output                   baseline.Output
}

func (p *program) addBaseline() {
	var (
		r        baselineRun
		arrivals string
		windows  []string
		expected float64
	)
	config := &r.config
	c := p.add("baseline", "Measure storage classes while all is well, and pin it for the alerts: in a rules file, or in a PrometheusRule.",
		func(ctx context.Context, log *slog.Logger) error {
			config.Driver.Arrivals = driver.Arrivals(arrivals)
			for _, text := range windows {
				window, err := baseline.ParseWindow(text, expected)
				if err != nil {
					return fmt.Errorf("--expected-window: %w", err)
				}
				config.Expected = append(config.Expected, window)
			}
			return r.run(ctx, log)
		},
		"loadgen baseline --targets=targets.yaml --output=rules/baseline.rules.yaml",
		"loadgen baseline --targets=targets.yaml --output=rules/baseline.rules.yaml --record=baseline-2026-11.json",
		"loadgen baseline --targets=targets.yaml --profile=wal-commit --rate=5 --over=24h --output=baseline.rules.yaml",
		"loadgen baseline --targets=targets.yaml --over=24h --expected-window='nightly backup 02:00-02:30 UTC' --output=baseline.rules.yaml",
		"LOADGEN_DSN=... loadgen baseline --database=db/shop --storageclass=longhorn-r3 --kubernetes.prometheusrule=db/plumbline-baseline")
	c.Flag("targets", "YAML file with the storage classes: targets, each with storageclass, dsn or dsn_file, engine, replicas, and database where a class has several.").StringVar(&r.targets)
	c.Flag("storageclass", "Instead of --targets: the storage class of the one server to measure.").StringVar(&r.one.StorageClass)
	c.Flag("database", "Its name, as its canary has it; without, the pin is for all databases of the class.").StringVar(&r.one.Database)
	c.Flag("engine", "Its database engine.").Default("postgres").EnumVar(&r.one.Engine, driver.Engines...)
	dsnFlag(c, "Its connection string.", &r.one.DSN)
	c.Flag("replicas", "How many copies its class keeps; for whoever reads the pin.").IntVar(&r.one.Replicas)
	c.Flag("output", "Rules file to write; the previous ones are kept as FILE.1, FILE.2 and so on.").StringVar(&r.file)
	c.Flag("record", "Also write all that was measured to this file, as JSON, also of a run that is no fit baseline: loadgen compare takes two of them. What lacks a class, as of an interrupted run, goes to FILE.partial.").StringVar(&r.record)
	c.Flag("kubernetes.prometheusrule", "PrometheusRule to write, NAMESPACE/NAME, or NAME in the pod's own namespace; it must be there. The previous pins are kept in an annotation.").StringVar(&r.object)
	c.Flag("kubernetes.kubeconfig", "How to reach the API server; the pod's own service account if empty.").Envar("KUBECONFIG").StringVar(&r.kubeconfig)
	c.Flag("history", "How many previous pins are kept.").Default("5").IntVar(&r.output.History)
	c.Flag("refuse-slower", "Keep the old pins, and fail, if a 95th percentile is more than this share above the pinned one (0.15: 15 %); 0 never does.").Default("0").Float64Var(&r.output.RefuseSlower)
	c.Flag("cluster", "Value of the label cluster for the pins, where one Prometheus has the rules for several clusters.").StringVar(&config.Cluster)
	c.Flag("profile", "The canary's profile: "+driver.ProfileNames()+".").Default("tpcb-like").StringVar(&config.Driver.Profile)
	c.Flag("rate", "The canary's rate, in transactions per second.").Default("10").Float64Var(&config.Driver.Rate)
	c.Flag("arrivals", "The canary's arrivals.").Default("poisson").EnumVar(&arrivals, "constant", "poisson")
	c.Flag("connections", "The canary's connections.").Default("4").IntVar(&config.Driver.Connections)
	c.Flag("timeout", "The canary's time-out.").Default("10s").DurationVar(&config.Driver.Timeout)
	c.Flag("queue", "The canary's queue.").Default("10000").IntVar(&config.Driver.Queue)
	c.Flag("scale", "The canary's scale.").Default("1").IntVar(&config.Driver.Scale)
	c.Flag("warmup", "Warm-up before the measurement.").Default("30s").DurationVar(&config.Driver.Warmup)
	c.Flag("duration", "Measure at least this long.").Default("10m").DurationVar(&config.Least)
	c.Flag("max-duration", "Measure at most this long; 0: an hour, or --duration if that is longer.").Default("0").DurationVar(&config.Most)
	c.Flag("precision", "Measure until the 95th percentile is known to this share of itself, with 95 % confidence.").Default("0.05").Float64Var(&config.Precision)
	c.Flag("over", "Measure exactly this long, whatever the precision: 24h has the peaks of a day.").DurationVar(&r.over)
	c.Flag("expected-window", "A time at which a class is known to be slow, for its alerts to wait: [CLASS=]NAME [Mon] HH:MM-HH:MM UTC. Repeatable.").StringsVar(&windows)
	c.Flag("expected-slowness", "How many times the pinned p95 is no surprise in expected windows; what is slower fires then, too.").Default("3").Float64Var(&expected)
	c.Flag("force", "Write the file even if failures or lack of CPU spoilt the run, which the file notes, or if the rate is too low for alerts.").BoolVar(&config.Force)
}

// check completes the flags' configuration, or returns what they lack.
func (r *baselineRun) check() ([]matrix.Target, error) {
	switch {
	case r.file == "" && r.object == "" && r.record == "":
		return nil, errors.New("nowhere to pin it: give --output or --kubernetes.prometheusrule, or --record to pin nothing")
	case r.output.History < 0 || r.output.RefuseSlower < 0 || r.over < 0:
		return nil, errors.New("--history, --refuse-slower and --over must not be below 0")
	case (r.targets == "") == (r.one.StorageClass == ""):
		return nil, errors.New("give either --targets or --storageclass")
	case r.targets != "" && (r.one.Database != "" || r.one.Replicas != 0):
		return nil, errors.New("--database and --replicas are of --storageclass: with --targets they stand in the file")
	case (r.file != "" || r.object != "") && !r.config.Force && r.config.Driver.Rate < baseline.LeastRate:
		return nil, fmt.Errorf("--rate=%g is too low for a pin: CanarySlow never judges a canary of less than %.3f/s; --force pins it all the same", r.config.Driver.Rate, baseline.LeastRate)
	case r.file != "" && r.record != "" && outfile.Same(r.file, r.record):
		return nil, fmt.Errorf("--output and --record are one file, %s", r.file)
	}
	switch {
	case r.over > 0:
		r.config.Least, r.config.Most = r.over, r.over
	case r.config.Most == 0:
		r.config.Most = max(time.Hour, r.config.Least)
	}
	if r.targets != "" {
		return matrix.ReadDatabases(r.targets)
	}
	return []matrix.Target{r.one}, nil
}

func (r *baselineRun) run(ctx context.Context, log *slog.Logger) error {
	classes, err := r.check()
	if err != nil {
		return err
	}
	err = checkFiles(r.record)
	if r.file != "" {
		err = errors.Join(err, r.output.CheckFile(r.file))
	}
	if err != nil {
		return err
	}
	var cluster *rest.Config
	if r.object != "" {
		if cluster, err = kube.Config(r.kubeconfig); err != nil {
			return fmt.Errorf("--kubernetes.prometheusrule: %w", err)
		}
		if err := baseline.Reach(ctx, cluster, r.object); err != nil {
			return err
		}
	}
	if r.record != "" {
		setAside(r.record, describeRecord, log)
	}
	found, unfit := baseline.Measure(ctx, r.config, classes, log)
	if len(found) == 0 {
		return unfit
	}
	r.output.Version = "loadgen"
	if info, ok := debug.ReadBuildInfo(); ok {
		r.output.Version += " " + info.Main.Version + " " + info.GoVersion
	}
	at := time.Now()
	// What was measured is kept also where the pins are refused, and whatever can be written is.
	err = r.keepRecord(found, len(classes), at)
	if unfit != nil {
		return errors.Join(fmt.Errorf("nothing is pinned: %w", unfit), err)
	}
	if r.file != "" {
		err = errors.Join(err, r.output.ToFile(r.file, found, at))
	}
	if r.object != "" {
		err = errors.Join(err, r.output.ToPrometheusRule(ctx, cluster, r.object, found, at))
	}
	return err
}

// keepRecord writes what was measured to --record. What lacks some of the classes, as of a run that was interrupted,
// takes no whole record's place.
func (r *baselineRun) keepRecord(found []baseline.Baseline, classes int, at time.Time) error {
	path := r.record
	var lacks error
	if len(found) < classes && path != "" && outfile.Replaces(path) {
		path += partialEnd
		lacks = fmt.Errorf("--record: %d of %d classes were measured to the end: they are in %s, and %s is left as it was", len(found), classes, path, r.record)
	}
	if err := writeFile(path, func(w io.Writer) error { return baseline.WriteRecord(w, found, classes, r.output.Version, at) }); err != nil {
		return err
	}
	return lacks
}

// describeRecord describes what is in a record.
func describeRecord(path string) (string, error) {
	record, err := baseline.ReadRecord(path)
	if err != nil {
		return "", err
	}
	words, _ := record.Lacks()
	return fmt.Sprintf("a baseline of %s: %s", record.Measured.UTC().Format("2006-01-02 15:04 UTC"), words), nil
}
