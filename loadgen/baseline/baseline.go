// Package baseline measures how a storage class performs when all is well and pins it as
// recording rules, for alerts to compare with: a pinned threshold does not learn a regression
// as normal, as a moving average does.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/loadgen/stats"
)

const (
	// pinned is the quantile whose confidence interval decides whether a run was long enough.
	pinned = 0.95
	// mostBad is the share of transactions that may fail or be skipped in a sound run.
	mostBad = 0.001
	// mostExpected is the share of a sound run that may lie in expected windows.
	mostExpected = 0.1
)

// Config configures a measurement.
type Config struct {
	// Driver is the load; its engine and connection string come from the target.
	Driver driver.Config
	// Least and Most bound how long each run takes after the warm-up. Within them it goes on until
	// the 95 % confidence interval of the 95th percentile is within Precision (0.05: 5 %) of it.
	Least, Most time.Duration
	Precision   float64
	// Cluster is put on the pins as a label, if it is not empty.
	Cluster string
	// Expected are the times at which the classes are known to be slow. They do not count where
	// hours are compared, and a run of which more than a tenth lies in them is spoilt.
	Expected []Window
	// Force takes a spoilt run too, and records in the rules file what spoilt it.
	Force bool
}

// Baseline is the outcome on one storage class.
type Baseline struct {
	StorageClass string
	// Database is the canary's label database; empty pins all databases of the class.
	Database string
	// Cluster is the label cluster that the rules' Prometheus has on its series, if it has.
	Cluster  string
	Replicas int
	Result   result.Result
	// Hours is how the run's hours differ; nil if it was too short to compare them.
	Hours *Hours
	// Expected are the windows of this class.
	Expected []Window
	// Precise reports whether the requested precision was reached.
	Precise bool
	// Pieces are the response times of each interval.
	Pieces []Piece
	// Spoilt is why the run is no fit baseline; empty: it is one.
	Spoilt string
}

// name returns whose baseline it is.
func (b Baseline) name() string {
	if b.Database == "" {
		return b.StorageClass
	}
	return b.StorageClass + " " + b.Database
}

// Measure runs the load on all targets side by side, as the canaries run later. They begin when all are reached and
// have their tables: until then a target that cannot be reached ends all, after that whatever is wrong with one costs
// that one alone. All that was measured is returned. A run that failures or the generator spoilt is an error, too: an
// alert on a spoilt baseline would be blind.
func Measure(ctx context.Context, config Config, targets []matrix.Target, log *slog.Logger) ([]Baseline, error) {
	if config.Least <= 0 || config.Most < config.Least || config.Precision <= 0 {
		return nil, fmt.Errorf("durations and precision must be above 0, the longest duration not below the shortest")
	}
	for _, w := range config.Expected {
		if w.StorageClass != "" && !slices.ContainsFunc(targets, func(t matrix.Target) bool { return t.StorageClass == w.StorageClass }) {
			return nil, fmt.Errorf("expected window %q: storage class %s is not among the targets", w, w.StorageClass)
		}
	}
	runs := make([]*run, len(targets))
	preparing, stop := context.WithCancel(ctx)
	defer stop()
	err := each(targets, func(i int, target matrix.Target) (err error) {
		if runs[i], err = prepare(preparing, config, target, log); err != nil {
			stop() // nothing is lost yet
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	err = each(targets, func(i int, target matrix.Target) error {
		err := runs[i].measure(ctx, config)
		if err != nil && ctx.Err() == nil {
			log.Error("no fit baseline; the other runs go on", "storageclass", target.StorageClass, "database", target.Database, "err", err)
		}
		return err
	})
	var found []Baseline
	for _, r := range runs {
		if r.measured {
			found = append(found, r.Baseline)
		}
	}
	return found, err
}

// each does something for all targets side by side, and names the target in each error.
func each(targets []matrix.Target, do func(i int, target matrix.Target) error) error {
	failures := make([]error, len(targets))
	var running sync.WaitGroup
	for i, target := range targets {
		running.Go(func() {
			if err := do(i, target); err != nil {
				failures[i] = fmt.Errorf("storage class %s: %w", Baseline{StorageClass: target.StorageClass, Database: target.Database}.name(), err)
			}
		})
	}
	running.Wait()
	return errors.Join(failures...)
}

// run is the run on one target.
type run struct {
	Baseline
	load     *metrics.Load
	driver   *driver.Driver
	measured bool // to its end
}

// prepare makes what a run needs, the tables among that.
func prepare(ctx context.Context, config Config, target matrix.Target, log *slog.Logger) (*run, error) {
	c := config.Driver
	c.Engine, c.DSN = target.Engine, target.DSN
	r := &run{Baseline: Baseline{StorageClass: target.StorageClass, Database: target.Database, Cluster: config.Cluster, Replicas: target.Replicas}}
	for _, w := range config.Expected {
		if w.StorageClass == "" || w.StorageClass == r.StorageClass {
			r.Expected = append(r.Expected, w)
		}
	}
	registry := prometheus.NewRegistry()
	r.load = metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary", Profile: c.Label(), Database: target.Database, StorageClass: target.StorageClass},
		metrics.Options{Target: c.Rate, Penalty: 10 * time.Second})
	var err error
	if r.driver, err = driver.New(c, r.load, driver.NewOwnMetrics(registry), log); err != nil {
		return nil, err
	}
	// Some profiles need no tables.
	if err := r.driver.Reach(ctx); err != nil {
		return nil, err
	}
	return r, r.driver.Init(ctx)
}

// measure runs the load. A run that is no fit baseline is measured all the same.
func (r *run) measure(ctx context.Context, config Config) (err error) {
	reached, hours, cut := make(chan bool, 1), sliced{length: Slice}, pieces{}
	// Known well enough, the run is stopped from outside, so that the time in which the last ones end is not in its
	// rate.
	measuring, stop := context.WithCancel(ctx)
	defer stop()
	r.Result, err = result.Measure(measuring, r.load, config.Driver.Rate, result.Warmup{Least: config.Driver.Warmup}, config.Most, func(ctx context.Context) {
		defer stop()
		go func() {
			reached <- waitPrecise(ctx, r.load, config, &hours, func(now time.Time) {
				cut.add(now, func() stats.Distribution { return r.load.Tally().Response }, expects(r.Expected))
			})
			stop()
		}()
		r.driver.Run(ctx)
	})
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	early := <-reached
	now, tally := time.Now(), r.load.Tally()
	// As it was decided, where it was: the few transactions that still ended then may tip the balance. A run that took
	// the longest time is judged by all of it.
	r.Precise = early || precise(tally, config.Precision)
	began := r.Result.Began()
	if !hours.began.IsZero() {
		hours.add(now, true, func() stats.Distribution { return tally.Response })
	}
	r.Hours, r.Pieces, r.measured = hours.hours(r.Expected), cut.kept, true
	if expected := share(r.Expected, began, began.Add(time.Duration(r.Result.Seconds*float64(time.Second)))); expected > mostExpected {
		r.Spoilt = fmt.Sprintf("%.0f %% of the run lay in the times at which it is expected to be slow", 100*expected)
		// Not what was offered less what completed: a warm-up's transactions may complete after it.
	} else if bad := tally.Unfit(); float64(bad) > mostBad*float64(tally.Offered) {
		r.Spoilt = fmt.Sprintf("%d of %d transactions failed or were skipped", bad, tally.Offered)
	} else if generator, _ := r.driver.Saturated(); generator {
		r.Spoilt = "the generator was saturated"
	}
	if r.Spoilt != "" && !config.Force {
		return fmt.Errorf("%s: no fit baseline", r.Spoilt)
	}
	return nil
}

// waitPrecise returns true when the run has been long enough, false when ctx ends before. It cuts
// the run in slices, and calls check, also when it is the last time.
func waitPrecise(ctx context.Context, load *metrics.Load, config Config, hours *sliced, check func(time.Time)) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case now := <-tick.C:
			if load.Phase() != metrics.Steady {
				continue
			}
			if hours.began.IsZero() {
				hours.began = now
			}
			check(now)
			hours.add(now, false, func() stats.Distribution { return load.Tally().Response })
			if now.Sub(hours.began) >= config.Least && precise(load.Tally(), config.Precision) {
				return true
			}
		}
	}
}

// precise reports whether the pinned quantile is known well enough.
func precise(t metrics.Tally, precision float64) bool {
	value := t.Response.Quantile(pinned).Seconds()
	if value == 0 || t.Response.Count() < 200 {
		return false
	}
	low, high := t.Response.Interval(pinned)
	return high.Seconds() <= value*(1+precision) && low.Seconds() >= value*(1-precision)
}
