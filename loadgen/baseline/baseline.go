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

// Config says how to measure.
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
	// Force takes a spoilt run too, and says in the rules file what spoilt it.
	Force bool
}

// Baseline is the outcome on one storage class.
type Baseline struct {
	StorageClass string
	// Server is the canary's label server; empty pins all servers of the class.
	Server string
	// Cluster is the label cluster that the rules' Prometheus has on its series, if it has.
	Cluster  string
	Replicas int
	Result   result.Result
	// Hours tells how the run's hours differ; nil if it was too short to tell.
	Hours *Hours
	// Expected are the windows of this class.
	Expected []Window
	// Precise says whether the precision asked for was reached.
	Precise bool
	// Pieces are the response times of each interval.
	Pieces []Piece
	// Spoilt says why the run is no fit baseline, if it was forced.
	Spoilt string
}

// name says whose baseline it is.
func (b Baseline) name() string {
	if b.Server == "" {
		return b.StorageClass
	}
	return b.StorageClass + " " + b.Server
}

// Measure runs the load on all targets side by side, as the canaries run later. A run that
// failures or the generator spoilt is an error: an alert on a spoilt baseline would be blind.
func Measure(ctx context.Context, config Config, targets []matrix.Target, log *slog.Logger) ([]Baseline, error) {
	if config.Least <= 0 || config.Most < config.Least || config.Precision <= 0 {
		return nil, fmt.Errorf("durations and precision must be above 0, the longest duration not below the shortest")
	}
	for _, w := range config.Expected {
		if w.StorageClass != "" && !slices.ContainsFunc(targets, func(t matrix.Target) bool { return t.StorageClass == w.StorageClass }) {
			return nil, fmt.Errorf("expected window %q: storage class %s is not among the targets", w, w.StorageClass)
		}
	}
	found := make([]Baseline, len(targets))
	failures := make([]error, len(targets))
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for i, target := range targets {
		running.Go(func() {
			found[i], failures[i] = one(ctx, config, target, log)
			if failures[i] != nil {
				failures[i] = fmt.Errorf("storage class %s: %w", Baseline{StorageClass: target.StorageClass, Server: target.Server}.name(), failures[i])
				stop()
			}
		})
	}
	running.Wait()
	if err := errors.Join(failures...); err != nil {
		return nil, err
	}
	return found, nil
}

func one(ctx context.Context, config Config, target matrix.Target, log *slog.Logger) (Baseline, error) {
	c := config.Driver
	c.Engine, c.DSN = target.Engine, target.DSN
	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary", Profile: c.Label(), Server: target.Server, StorageClass: target.StorageClass},
		metrics.Options{Target: c.Rate, Penalty: 10 * time.Second})
	d, err := driver.New(c, load, driver.NewOwnMetrics(registry), log)
	if err != nil {
		return Baseline{}, err
	}
	if err := d.Init(ctx); err != nil {
		return Baseline{}, err
	}
	b := Baseline{StorageClass: target.StorageClass, Server: target.Server, Cluster: config.Cluster, Replicas: target.Replicas}
	for _, w := range config.Expected {
		if w.StorageClass == "" || w.StorageClass == b.StorageClass {
			b.Expected = append(b.Expected, w)
		}
	}
	reached, hours, run := make(chan bool, 1), sliced{length: Slice}, pieces{}
	// Known well enough, it is told to end from outside, so that the time in which the last ones end is not in its rate.
	measured, stop := context.WithCancel(ctx)
	defer stop()
	b.Result, err = result.Measure(measured, load, c.Rate, result.Warmup{Least: c.Warmup}, config.Most, func(ctx context.Context) {
		defer stop()
		go func() {
			reached <- waitPrecise(ctx, load, config, &hours, func(now time.Time) {
				run.add(now, func() stats.Distribution { return load.Tally().Response }, expects(b.Expected))
			})
			stop()
		}()
		d.Run(ctx)
	})
	if err != nil {
		return b, err
	}
	if ctx.Err() != nil {
		return b, ctx.Err()
	}
	// As it was decided: the few transactions that still ended then may tip the balance.
	b.Precise = <-reached
	now, tally := time.Now(), load.Tally()
	began := b.Result.Began()
	if !hours.began.IsZero() {
		hours.add(now, true, func() stats.Distribution { return tally.Response })
	}
	b.Hours, b.Pieces = hours.hours(b.Expected), run.kept
	if expected := share(b.Expected, began, began.Add(time.Duration(b.Result.Seconds*float64(time.Second)))); expected > mostExpected {
		b.Spoilt = fmt.Sprintf("%.0f %% of the run lay in the times at which it is expected to be slow", 100*expected)
		// Not what was offered less what completed: a warm-up's transactions may complete after it.
	} else if bad := tally.Unfit(); float64(bad) > mostBad*float64(tally.Offered) {
		b.Spoilt = fmt.Sprintf("%d of %d transactions failed or were skipped", bad, tally.Offered)
	} else if generator, _ := d.Saturated(); generator {
		b.Spoilt = "the generator was saturated"
	}
	if b.Spoilt != "" && !config.Force {
		return b, fmt.Errorf("%s: no fit baseline", b.Spoilt)
	}
	return b, nil
}

// waitPrecise returns true when the run has been long enough, false when ctx ends before. It cuts
// the run in slices, and calls look, also when it is the last time.
func waitPrecise(ctx context.Context, load *metrics.Load, config Config, run *sliced, look func(time.Time)) bool {
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
			if run.began.IsZero() {
				run.began = now
			}
			look(now)
			run.add(now, false, func() stats.Distribution { return load.Tally().Response })
			if now.Sub(run.began) >= config.Least && precise(load.Tally(), config.Precision) {
				return true
			}
		}
	}
}

// precise says whether the pinned quantile is known well enough.
func precise(t metrics.Tally, precision float64) bool {
	value := t.Response.Quantile(pinned).Seconds()
	if value == 0 || t.Response.Count() < 200 {
		return false
	}
	low, high := t.Response.Interval(pinned)
	return high.Seconds() <= value*(1+precision) && low.Seconds() >= value*(1-precision)
}
