package result

import (
	"context"
	"math"
	"strings"
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

// The time that a rate is over ends with the arrivals: what is under way then is awaited, whether the time is over or
// the run is stopped before.
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

// What ended a moment too soon does not read as if it had not.
func TestShortByLittle(t *testing.T) {
	if err := (&Result{Seconds: 59.99}).Short(time.Minute); err == nil || err.Error() != "ended after 59.9 s of 1m0s" {
		t.Error(err)
	}
}

// The count begins when the load is steady, with a warm-up or without: what came before, such as the time in which a
// tool was not up, is in neither the count nor the time; and what was under way at the beginning makes up for what is
// at the end.
func TestCountBeginsWithTheTime(t *testing.T) {
	for name, response := range map[string]time.Duration{"quick": time.Millisecond, "under way": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load := newLoad()
				r, err := Measure(t.Context(), load, 100, Warmup{}, 2*time.Second, func(ctx context.Context) {
					load.Offered(400) // while it was not up
					for range 400 {
						load.Skipped(metrics.Down, 0)
					}
					arrivals := time.NewTicker(10 * time.Millisecond)
					defer arrivals.Stop()
					behind := int(response / (10 * time.Millisecond))
					for n := 0; ; n++ {
						if n == 300 {
							load.SetPhase(metrics.Steady)
						}
						select {
						case <-ctx.Done():
							time.Sleep(response)
							for range behind {
								load.Completed(response, response)
							}
							load.SetPhase(metrics.Stopped)
							return
						case <-arrivals.C:
							if load.Offered(1); n >= behind {
								load.Completed(response, response)
							}
						}
					}
				})
				if err != nil || math.Abs(r.Rate-100) > 2.5 || r.Skipped["down"] > 0 || math.Abs(float64(r.Offered)-200) > 3 {
					t.Errorf("%.2f/s of 100/s, %d offered, %v skipped, %v", r.Rate, r.Offered, r.Skipped, err)
				}
			})
		})
	}
}

// A tool that reports once a second is counted from report to report, by the moments that they are of.
func TestReportsAreWhole(t *testing.T) {
	for name, warmup := range map[string]time.Duration{"no warm-up": 0, "warm-up": 2500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				load := newLoad()
				r, err := Measure(t.Context(), load, 100, Warmup{Least: warmup}, 2*time.Second, func(ctx context.Context) {
					began := time.Now()
					load.Report(began, func() {})
					report := func(until time.Time, n uint64) {
						load.Report(until, func() {
							load.Offered(n)
							load.Served(time.Millisecond, n)
						})
					}
					for second := 1; ; second++ {
						select {
						case <-ctx.Done():
							// The last report comes late, and is of the time until it was stopped.
							last := time.Since(began) - time.Duration(second-1)*time.Second
							time.Sleep(300 * time.Millisecond)
							report(began.Add(time.Duration(second-1)*time.Second+last), uint64(last.Milliseconds()/10))
							load.SetPhase(metrics.Stopped)
							return
						case <-time.After(time.Second):
						}
						if second == 1 {
							if warmup == 0 {
								load.SetPhase(metrics.Steady)
							} else {
								time.AfterFunc(warmup, func() { load.SetPhase(metrics.Steady) })
							}
						}
						report(began.Add(time.Duration(second)*time.Second), 100)
					}
				})
				if err != nil || math.Abs(r.Rate-100) > 1 || math.Abs(r.Rate*r.Seconds-float64(r.Completed)) > 0.01 || r.Seconds < 1.9 || r.Seconds > 3.1 {
					t.Errorf("%.2f/s over %.2f s, %d, %v; want 100/s", r.Rate, r.Seconds, r.Completed, err)
				}
			})
		})
	}
}

// A result in which the tool failed, or most failed, is not one of the server; one of too much load is.
func TestUnsound(t *testing.T) {
	tally := func(change func(*metrics.Tally)) metrics.Tally {
		m := metrics.Tally{Offered: 100, Completed: 100}
		change(&m)
		return m
	}
	for name, c := range map[string]struct {
		tally metrics.Tally
		want  string
	}{
		"good":          {tally(func(m *metrics.Tally) {}), ""},
		"some failed":   {tally(func(m *metrics.Tally) { m.Completed, m.Errors = 60, map[metrics.ErrorKind]uint64{metrics.Timeout: 40} }), ""},
		"overload":      {tally(func(m *metrics.Tally) { m.Completed, m.Skipped = 20, map[metrics.SkipReason]uint64{metrics.Late: 80} }), ""},
		"most failed":   {tally(func(m *metrics.Tally) { m.Completed, m.Errors = 40, map[metrics.ErrorKind]uint64{metrics.Storage: 60} }), "of 100 that were due 60 failed (60 storage)"},
		"most not sent": {tally(func(m *metrics.Tally) { m.Completed, m.Skipped = 1, map[metrics.SkipReason]uint64{metrics.Down: 99} }), "99 were not sent"},
		"nothing":       {metrics.Tally{}, "nothing was completed"},
		"the tool": {tally(func(m *metrics.Tally) {
			m.Causes = map[metrics.Cause]uint64{{Reason: metrics.Killed, Words: "segmentation fault"}: 3}
		}),
			"the load tool ended by itself, 3 times (killed): segmentation fault"},
		"the server": {tally(func(m *metrics.Tally) {
			m.Causes = map[metrics.Cause]uint64{{Reason: metrics.ServerDown, Words: "gone"}: 1}
		}), ""},
	} {
		r := New(metrics.Labels{}, 10, 10*time.Second, c.tally)
		if err := r.Unsound(); (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if len(c.tally.Causes) != len(r.ToolEnds) || len(r.ToolEnds) > 0 && len(r.Notes) == 0 {
			t.Errorf("%s: ends %+v, notes %q", name, r.ToolEnds, r.Notes)
		}
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
