// Package baseline measures how a storage class performs when all is well and pins it as
// recording rules, for alerts to compare with: a pinned threshold does not learn a regression
// as normal, as a moving average does.
package baseline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

const (
	// pinned is the quantile whose confidence interval decides whether a run was long enough.
	pinned = 0.95
	// mostBad is the share of transactions that may fail or be skipped in a sound run.
	mostBad = 0.001
)

// Config says how to measure.
type Config struct {
	// Driver is the load; its engine and connection string come from the target.
	Driver driver.Config
	// Least and Most bound how long each run takes after the warm-up. Within them it goes on until
	// the 95 % confidence interval of the 95th percentile is within Precision (0.05: 5 %) of it.
	Least, Most time.Duration
	Precision   float64
	// Force takes a spoilt run too, and says in the rules file what spoilt it.
	Force bool
}

// Baseline is the outcome on one storage class.
type Baseline struct {
	StorageClass string
	Replicas     int
	Result       result.Result
	// Precise says whether the precision asked for was reached.
	Precise bool
	// Spoilt says why the run is no fit baseline, if it was forced.
	Spoilt string
}

// Measure runs the load on all targets side by side, as the canaries run later. A run that
// failures or the generator spoilt is an error: an alert on a spoilt baseline would be blind.
func Measure(ctx context.Context, config Config, targets []matrix.Target, log *slog.Logger) ([]Baseline, error) {
	if config.Least <= 0 || config.Most < config.Least || config.Precision <= 0 {
		return nil, fmt.Errorf("durations and precision must be above 0, the longest duration not below the shortest")
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
				failures[i] = fmt.Errorf("storage class %s: %w", target.StorageClass, failures[i])
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
	load := metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary", Profile: c.Label(), StorageClass: target.StorageClass},
		metrics.Options{Target: c.Rate, Penalty: 10 * time.Second})
	d, err := driver.New(c, load, driver.NewOwnMetrics(registry), log)
	if err != nil {
		return Baseline{}, err
	}
	if err := d.Init(ctx); err != nil {
		return Baseline{}, err
	}
	b := Baseline{StorageClass: target.StorageClass, Replicas: target.Replicas}
	reached := make(chan bool, 1)
	b.Result, err = result.Measure(ctx, load, c.Rate, c.Warmup, config.Most, func(ctx context.Context) {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			reached <- waitPrecise(ctx, load, config)
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
	tally := load.Tally()
	// Not what was offered less what completed: a warm-up's transactions may complete after it.
	if bad := tally.Unfit(); float64(bad) > mostBad*float64(tally.Offered) {
		b.Spoilt = fmt.Sprintf("%d of %d transactions failed or were skipped", bad, tally.Offered)
	} else if generator, _ := d.Saturated(); generator {
		b.Spoilt = "the generator was saturated"
	}
	if b.Spoilt != "" && !config.Force {
		return b, fmt.Errorf("%s: no fit baseline", b.Spoilt)
	}
	return b, nil
}

// waitPrecise returns true when the run has been long enough, false when ctx ends before.
func waitPrecise(ctx context.Context, load *metrics.Load, config Config) bool {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var steady time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case now := <-tick.C:
			if load.Phase() != metrics.Steady {
				continue
			}
			if steady.IsZero() {
				steady = now
			}
			if now.Sub(steady) >= config.Least && precise(load.Tally(), config.Precision) {
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
