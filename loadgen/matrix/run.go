package matrix

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/adapter/fio"
	"github.com/plumbline/plumbline/loadgen/adapter/pgbench"
	"github.com/plumbline/plumbline/loadgen/adapter/sysbench"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/rules/why"
)

// warmup of each run, as dbench's ramp.
const warmup = 2 * time.Second

// longestSilence is for how long a run may wait for its first operation, as on a disk that hangs: the other classes'
// runs are waiting for it.
var longestSilence = 5 * time.Minute

// windUp is how long an interrupted matrix may query layers, before the timeout of what stopped it.
const windUp = 15 * time.Second

// Runner runs a matrix.
type Runner struct {
	// Paths of the programs.
	FIO, Pgbench, Sysbench string
	// ProcFS is where /proc is.
	ProcFS string
	// Scale shrinks sizes and times; MaxClients bounds clients, threads and jobs.
	Scale      float64
	MaxClients int
	// Least is how short Scale may make a run.
	Least time.Duration
	// Only names the steps to run, by their names; all if empty.
	Only []string
	// Repeat is how many rounds each step has, every round with all targets; 0 is 1.
	Repeat int
	// Order is the targets' order in each round: file (always as in the file), abba (every other round
	// backwards) or random (by Seed). Empty is file.
	Order string
	Seed  uint64
	// Wait is how long the databases may take to answer before the first run; 0: they are not waited for.
	Wait time.Duration
	// Cooldown is how long to do nothing before each run.
	Cooldown time.Duration
	// DropCaches empties the kernel's page cache before each run; it needs root.
	DropCaches bool
	// Precondition writes fio's files in full before each run, so that a thin volume has all of their blocks.
	Precondition bool
	// MaxWarmup bounds how long a run warms up until its rate is steady; 0: the fixed warm-up alone.
	MaxWarmup time.Duration
	// Prometheus watches the classes; without it no layers are recorded.
	Prometheus why.API
	// Pod is the one that this runs in, NAMESPACE/NAME; fio's files of a class are on the ephemeral volume that it has
	// of it. Empty is none.
	Pod string
	// Save keeps, after each run, the report of a matrix that is interrupted there, without layers; nil: nothing is
	// kept before the end.
	Save func(*Report) error
	Log  *slog.Logger
}

// Row is the outcome of one step on one storage class.
type Row struct {
	Step         string              `json:"step"`
	StorageClass string              `json:"storageclass"`
	Round        int                 `json:"round"`              // from 1
	Prepared     []string            `json:"prepared,omitempty"` // what was done before the run, and what failed of it
	Result       *result.Result      `json:"result,omitempty"`
	Phases       []pgbench.InitPhase `json:"phases,omitempty"` // of making tables
	MBPerSecond  float64             `json:"mb_per_second,omitempty"`
	Sync         *result.Latency     `json:"sync,omitempty"` // fdatasync calls, in seconds, without the warm-up's
	Began        time.Time           `json:"began"`          // of the run, warm-up included
	Ended        time.Time           `json:"ended"`
	CPUIdle      Share               `json:"cpu_idle"`       // share of all CPUs' time meanwhile, on the generator's machine
	Generator    float64             `json:"generator_cpus"` // how many CPUs loadgen and its tool kept busy
	Layers       *Layers             `json:"layers,omitempty"`
	NoLayers     string              `json:"no_layers,omitempty"` // why there are none
	Limit        *Limit              `json:"limit,omitempty"`
	Error        string              `json:"error,omitempty"`
	Doubts       []string            `json:"doubts,omitempty"`

	step Step
	// address is where the database answered, HOST:PORT, before the run and after it; "" if it does not report it.
	// moved is why it was not the same one.
	address, moved string
}

// Run runs the matrix of a name, step by step, each on all targets before the next, so that a change on the machine
// meets all of them. What fails is recorded in its row, and the rest is run. The report of an interrupted matrix has
// what was measured, and the error reports the interruption.
func (r *Runner) Run(ctx context.Context, name string, targets []Target) (*Report, error) {
	m, ok := Matrices[name]
	if !ok {
		return nil, fmt.Errorf("unknown matrix %q; there are %s", name, Names())
	}
	if !slices.Contains(Orders, r.order()) {
		return nil, fmt.Errorf("unknown order %q; there are %s", r.Order, strings.Join(Orders, ", "))
	}
	if r.Repeat > mostRounds {
		return nil, fmt.Errorf("repeat must not be above %d", mostRounds)
	}
	if r.Repeat < 0 || r.Wait < 0 || r.Cooldown < 0 || r.MaxWarmup < 0 {
		return nil, fmt.Errorf("repeat, wait, cool-down and warm-up must not be below 0")
	}
	if !(r.Scale > 0) || r.Scale > 1 || r.MaxClients < 1 || r.Least <= 0 {
		return nil, fmt.Errorf("scale must be above 0 and at most 1, max clients and least duration above 0")
	}
	steps, err := m.only(name, r.Only)
	if err != nil {
		return nil, err
	}
	if r.Wait > 0 {
		if err := Await(ctx, targets, r.Wait, r.Log); err != nil {
			return nil, fmt.Errorf("--wait: %w", err)
		}
	}
	report := &Report{Schema: SchemaVersion, Matrix: name, Source: m.Source, Scale: r.Scale, MaxClients: r.MaxClients, Least: r.Least.Seconds(), Began: time.Now().UTC(), Targets: targets,
		Repeat: max(r.Repeat, 1), Order: r.order(), Seed: r.Seed}
	planned := len(steps) * max(r.Repeat, 1) * len(targets)
	if r.Save != nil {
		report.Environment = r.environment(ctx, targets)
	}
	for _, published := range steps {
		step := published.scaled(r.Scale, r.MaxClients, r.Least)
		for round := 1; round <= max(r.Repeat, 1); round++ {
			for _, target := range r.inOrder(targets, step.Name, round) {
				// Interrupted, what was measured is kept.
				if row, err := r.one(ctx, name, step, published, target, round); err == nil {
					report.Rows = append(report.Rows, row)
					r.save(report, planned)
				}
			}
		}
	}
	interrupted := ctx.Err()
	switch {
	case len(report.Rows) == 0 && interrupted != nil:
		return nil, interrupted
	case len(report.Rows) == 0:
		return nil, errors.New("there are no targets")
	case interrupted != nil:
		report.interrupt(planned)
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(context.WithoutCancel(ctx), windUp)
		defer stop()
	}
	report.Environment = r.environment(ctx, targets)
	report.judge()
	r.queryLayers(ctx, report)
	report.sumUp()
	return report, interrupted
}

// save keeps what was measured so far. If it cannot, as on a full disk, the runs go on.
func (r *Runner) save(report *Report, planned int) {
	if r.Save == nil {
		return
	}
	if err := r.Save(report.sofar(planned)); err != nil {
		r.Log.Error("what was measured so far could not be kept; the runs go on", "err", err)
	}
}

// one runs a step on a target. Only a cancelled ctx is an error; what fails is recorded in the row.
func (r *Runner) one(ctx context.Context, name string, step, published Step, target Target, round int) (Row, error) {
	row := Row{Step: step.Name, StorageClass: target.StorageClass, Round: round, step: step, CPUIdle: unknownShare}
	if ctx.Err() != nil {
		return row, ctx.Err()
	}
	if n := step.clients(); n != published.clients() {
		row.Doubts = append(row.Doubts, fmt.Sprintf("%d clients instead of %d", n, published.clients()))
	}
	r.Log.Info("running", "matrix", name, "step", step.Name, "round", round, "storageclass", target.StorageClass, "for", step.Duration)
	watch := r.watch()
	if err := r.row(ctx, target, &row); err != nil {
		if ctx.Err() != nil {
			return row, ctx.Err()
		}
		r.Log.Error("step failed; the others go on", "step", step.Name, "storageclass", target.StorageClass, "err", err)
		row.Error, row.Result = err.Error(), nil // what is no result is in no figure
	}
	if row.Began.IsZero() {
		watch.into(&row)
	}
	return row, ctx.Err()
}

// failures adds up errors.
func failures(errors map[string]uint64) (n uint64) {
	for _, some := range errors {
		n += some
	}
	return n
}

// kinds are errors in words.
func kinds(errors map[string]uint64) string {
	var all []string
	for _, kind := range slices.Sorted(maps.Keys(errors)) {
		all = append(all, fmt.Sprintf("%d %s", errors[kind], kind))
	}
	return strings.Join(all, ", ")
}

// needs returns what a target lacks for a step.
func needs(field, value string) error {
	if value == "" {
		return fmt.Errorf("the target has no %s", field)
	}
	return nil
}

func (r *Runner) row(ctx context.Context, target Target, row *Row) error {
	step := row.step
	labels := metrics.Labels{Profile: step.Name, StorageClass: target.StorageClass}
	set := metrics.NewSet(prometheus.NewRegistry())
	supervisor := &adapter.Supervisor{Log: r.Log, Warmup: warmup}
	// All are closed loops.
	load := func(tool string) *metrics.Load {
		labels.Tool = tool
		supervisor.Load = set.Load(labels, metrics.Options{NoResponse: true})
		return supervisor.Load
	}
	// beside are further loads that the tool makes.
	measure := func(once func(context.Context) adapter.Ended, beside ...*metrics.Load) error {
		r.prepare(ctx, target, row)
		// A tool that ends by itself is not started again: a restart would hide why.
		var ended adapter.Ended
		defer r.follow(ctx, target, row)()
		// Not from before the tables were made: that is other work.
		defer r.watch().into(row)
		measured := supervisor.Load
		measuring, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		silent := time.AfterFunc(longestSilence, func() {
			if p := measured.Phase(); p != metrics.Warmup && p != metrics.Steady {
				stop(fmt.Errorf("no operation was completed in the first %v", longestSilence))
			}
		})
		defer silent.Stop()
		got, err := result.Measure(measuring, supervisor.Load, 0, result.Warmup{Least: warmup, Most: min(r.MaxWarmup, step.Duration), Beside: beside}, step.Duration, func(ctx context.Context) {
			ended = once(ctx)
			supervisor.Load.SetPhase(metrics.Stopped)
		})
		if err != nil && ctx.Err() == nil && measuring.Err() != nil {
			err = context.Cause(measuring)
		}
		if err != nil {
			return errors.Join(err, ended.Err)
		}
		if got.Seconds < step.Duration.Seconds()*0.9 {
			return fmt.Errorf("ended after %.1f s: %w", got.Seconds, ended.Err)
		}
		// Of nothing there is no time of an operation: it would be the shortest of all.
		if got.Completed == 0 {
			return fmt.Errorf("no operation was completed in %.1f s, of %d that failed", got.Seconds, failures(got.Errors))
		}
		// One that works does not make a run of those that fail.
		if failed := failures(got.Errors); failed >= got.Completed {
			return errors.Join(fmt.Errorf("%d operations failed (%s), and %d were completed, in %.1f s", failed, kinds(got.Errors), got.Completed, got.Seconds), ended.Err)
		}
		row.Result = &got
		return nil
	}
	switch {
	case step.FIO != nil:
		return r.fio(ctx, target, row, set, supervisor, load("fio"), measure)
	case step.Init != nil, step.Pgbench != nil, step.Scan != nil:
		if err := needs("dsn", target.DSN); err != nil {
			return err
		}
		if target.Engine != "postgres" {
			return fmt.Errorf("pgbench needs PostgreSQL, the target has %s", target.Engine)
		}
		config := pgbench.Config{Path: r.Pgbench, DSN: target.DSN, Clients: 1, Jobs: 1, Protocol: "simple", Builtin: "tpcb-like", MaxTries: 1}
		switch {
		case step.Init != nil:
			config.Scale = step.Init.Scale
		case step.Scan != nil:
			folder, err := os.MkdirTemp("", "loadgen-scan-")
			if err != nil {
				return err
			}
			defer os.RemoveAll(folder)
			config.Scale, config.Script = step.Scan.Scale, filepath.Join(folder, "scan.sql")
			if err := os.WriteFile(config.Script, []byte("SELECT count(abalance) FROM pgbench_accounts;\n"), 0o644); err != nil {
				return err
			}
		default:
			config.Clients, config.Jobs, config.Scale = step.Pgbench.Clients, min(step.Pgbench.Clients, 2), step.Pgbench.Scale
			config.Builtin = cmp.Or(step.Pgbench.Builtin, config.Builtin)
		}
		tool, err := pgbench.New(config, load("pgbench"), r.Log, supervisor.Up)
		if err != nil {
			return err
		}
		if step.Init != nil {
			r.prepare(ctx, target, row)
			row.Phases, err = tool.Remake(ctx)
			return err
		}
		if err := tool.Init(ctx); err != nil {
			return err
		}
		return measure(tool.Once)
	case step.Sysbench != nil:
		if err := needs("dsn", target.DSN); err != nil {
			return err
		}
		tool, err := sysbench.New(step.Sysbench.config(r.Sysbench, sysbench.Target{Engine: target.Engine, DSN: target.DSN}), load("sysbench"), r.Log, supervisor.Up)
		if err != nil {
			return err
		}
		if err := tool.Init(ctx); err != nil {
			return err
		}
		return measure(tool.Once)
	}
	return fmt.Errorf("step %q does nothing", step.Name)
}

func (r *Runner) fio(ctx context.Context, target Target, row *Row, set *metrics.Set, supervisor *adapter.Supervisor, load *metrics.Load, measure func(func(context.Context) adapter.Ended, ...*metrics.Load) error) error {
	if err := needs("directory", target.Directory); err != nil {
		return err
	}
	f := row.step.FIO
	syncs := set.Load(metrics.Labels{Tool: "fio", Profile: row.Step + " sync", StorageClass: target.StorageClass}, metrics.Options{})
	tool, err := fio.New(f.config(r.FIO, target.Directory), load, syncs, r.Log, supervisor.Up)
	if err != nil {
		return err
	}
	if r.Precondition {
		err = row.note("files written in full", tool.Make(ctx))
	}
	if err == nil {
		err = measure(tool.Once, syncs)
	}
	if err = errors.Join(err, tool.Cleanup()); err != nil {
		return err
	}
	row.MBPerSecond = row.Result.Rate * float64(f.BlockKiB) * 1024 / 1e6
	if f.Fdatasync > 0 {
		tally := syncs.Tally()
		sync := result.Sum(&tally.Service)
		row.Sync = &sync
	}
	return nil
}

// osRelease reads the kernel's version.
func (r *Runner) osRelease() string {
	text, err := os.ReadFile(filepath.Join(r.ProcFS, "sys/kernel/osrelease"))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
