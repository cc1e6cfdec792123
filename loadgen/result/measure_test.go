package result

import (
	"context"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// drained is an open loop of a hundred a second: those of the last two seconds end only in the five after ctx has.
func drained(ctx context.Context, load *metrics.Load) {
	const behind = 200
	load.SetPhase(metrics.Steady)
	arrivals := time.NewTicker(10 * time.Millisecond)
	defer arrivals.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			time.Sleep(5 * time.Second)
			for range min(n, behind) {
				load.Completed(2*time.Second, time.Millisecond)
			}
			load.SetPhase(metrics.Stopped)
			return
		case <-arrivals.C:
			if load.Offered(1); n >= behind {
				load.Completed(2*time.Second, time.Millisecond)
			}
		}
	}
}

func newLoad() *metrics.Load {
	return metrics.NewSet(prometheus.NewRegistry()).Load(metrics.Labels{Tool: "canary"}, metrics.Options{})
}

// The time that a rate is over ends with the arrivals: what is under way then is awaited, whether the time is over or the run is told
// to end before.
func TestRateIsWithoutTheDrain(t *testing.T) {
	for name, early := range map[string]time.Duration{"in time": 0, "interrupted": 20 * time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				want := 60.0
				if early > 0 {
					want = early.Seconds()
					time.AfterFunc(early, stop)
				}
				load, began := newLoad(), time.Now()
				r, err := Measure(ctx, load, 100, Warmup{}, time.Minute, func(ctx context.Context) { drained(ctx, load) })
				if err != nil {
					t.Fatal(err)
				}
				if r.Completed != r.Offered || math.Abs(float64(r.Completed)-100*want) > 3 {
					t.Errorf("%d completed of %d, want all of %.0f", r.Completed, r.Offered, 100*want)
				}
				if math.Abs(r.Seconds-want) > 0.1 || math.Abs(r.Rate-100) > 0.5 {
					t.Errorf("%.2f/s over %.2f s, want 100/s over %.0f s", r.Rate, r.Seconds, want)
				}
				if short := r.Short(time.Minute); (short != nil) != (early > 0) || (len(r.Notes) > 0) != (early > 0) {
					t.Errorf("after %.1f s it is short: %v, notes %q", r.Seconds, short, r.Notes)
				}
				if at := r.Began().Sub(began); at < 0 || at > 100*time.Millisecond {
					t.Errorf("it began %v after its begin", at)
				}
			})
		})
	}
}

// A load that ends by itself was measured until then.
func TestEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		load := newLoad()
		r, err := Measure(t.Context(), load, 100, Warmup{}, time.Minute, func(ctx context.Context) {
			load.SetPhase(metrics.Steady)
			time.Sleep(30 * time.Second)
			load.Offered(600)
			load.Served(time.Millisecond, 600)
		})
		if err != nil || math.Abs(r.Seconds-30) > 0.1 || math.Abs(r.Rate-20) > 0.2 {
			t.Errorf("%.2f/s over %.2f s, %v; want 20/s over 30 s", r.Rate, r.Seconds, err)
		}
	})
}

// What takes microseconds does not take nothing.
func TestMilliseconds(t *testing.T) {
	for seconds, want := range map[float64]string{0: "0.00 ms", 0.0000031: "0.0031 ms", 0.00004567: "0.0457 ms", 0.0003: "0.30 ms", 0.0123: "12.3 ms", 1.5: "1500 ms"} {
		if got := Milliseconds(seconds); got != want {
			t.Errorf("%v s are printed as %s, want %s", seconds, got, want)
		}
	}
}
