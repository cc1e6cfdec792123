package driver

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// rig is a driver and its counts.
type rig struct {
	*Driver
	load *metrics.Load
}

func newRig(t *testing.T, config Config) rig {
	t.Helper()
	base := Config{Engine: "postgres", Profile: "simple-ping", Scale: 1, Rate: 200, Arrivals: Constant, Connections: 4,
		Timeout: 10 * time.Second, Queue: 10000, Seed: 1}
	base.DSN = config.DSN
	if config.Engine != "" {
		base.Engine = config.Engine
	}
	if config.Profile != "" {
		base.Profile = config.Profile
	}
	if config.Rate > 0 {
		base.Rate = config.Rate
	}
	if config.Arrivals != "" {
		base.Arrivals = config.Arrivals
	}
	if config.Connections > 0 {
		base.Connections = config.Connections
	}
	if config.Timeout > 0 {
		base.Timeout = config.Timeout
	}
	if config.Queue > 0 {
		base.Queue = config.Queue
	}
	base.LatencyLimit, base.Others, base.Wait = config.LatencyLimit, config.Others, config.Wait
	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary", Profile: base.Profile},
		metrics.Options{Target: base.Rate, Penalty: 20 * time.Second})
	d, err := New(base, load, NewOwnMetrics(registry), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err != nil {
		t.Fatal(err)
	}
	return rig{d, load}
}

// start runs the driver until the returned function is called, or the test ends.
func (r rig) start(t *testing.T) (stop func()) { return testload.Start(t, r.Run) }

func (r rig) await(t *testing.T, what string, is func(metrics.Tally) bool) {
	t.Helper()
	testload.Until(t, r.load, what, is)
}

// balance: nothing offered may be unaccounted for once the driver has ended.
func (r rig) balance(t *testing.T) metrics.Tally {
	t.Helper()
	got := r.load.Tally()
	ended := got.Completed + got.Skipped[metrics.Late] + got.Skipped[metrics.Down] + got.Skipped[metrics.End]
	for _, n := range got.Errors {
		ended += n
	}
	if got.Offered != ended || got.Response.Count() != got.Offered || got.Service.Count() != got.Completed {
		t.Errorf("offered %d, but completed %d, errors %v, skipped %v; %d response times", got.Offered, got.Completed, got.Errors, got.Skipped, got.Response.Count())
	}
	return got
}

// attempt measures something that a busy machine can spoil, up to five times.
func attempt(t *testing.T, measure func() error) {
	t.Helper()
	var err error
	for n := range 5 {
		if err = measure(); err == nil {
			return
		}
		t.Logf("attempt %d: %v", n+1, err)
	}
	t.Error(err)
}

// The offered rate follows the plan whatever the server does.
func TestOfferedRate(t *testing.T) {
	server := testdb.StartStaller(t)
	for _, rate := range []float64{100, 2000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			offeredRate(t, server, rate)
		})
	}
}

func offeredRate(t *testing.T, server *testdb.Staller, rate float64) {
	t.Helper()
	r := newRig(t, Config{DSN: server.DSN(), Rate: rate, Connections: 8})
	var before, after syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
		t.Fatal(err)
	}
	stop := r.start(t)
	r.await(t, "the first", func(m metrics.Tally) bool { return m.Offered > 0 })
	began, first := time.Now(), r.load.Tally().Offered
	var rates []float64
	var offered float64
	// On a busy machine a reading can be a scheduling delay late, which is less and less of the time since it began.
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		took := time.Since(began).Seconds()
		rates = append(rates, float64(r.load.Tally().Offered-first)/took)
		const readings = 9 // of which the median counts
		if took < 1.5 || len(rates) < readings {
			return fmt.Errorf("%d readings in %.1f s", len(rates), took)
		}
		latest := slices.Sorted(slices.Values(rates[len(rates)-readings:]))
		if offered = latest[readings/2]; math.Abs(offered/rate-1) > 0.01 {
			return fmt.Errorf("offered %.2f/s in %.1f s, want %g/s within 1 %%", offered, took, rate)
		}
		return nil
	})
	stop()
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
		t.Fatal(err)
	}
	got := r.balance(t)
	cpu := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
	t.Logf("offered %.2f/s of %g/s; response p99 %v; %.2f s CPU per 1,000 transactions, server included", offered, rate,
		got.Response.Quantile(0.99), cpu/float64(got.Completed)*1000)
}

// More than the connections can take is reported, and none of it is lost.
func TestSaturationIsReported(t *testing.T) {
	attempt(t, func() error { return saturationIsReported(t) })
}

func saturationIsReported(t *testing.T) error {
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), Rate: 500, Connections: 1, Queue: 50})
	stop := r.start(t)
	defer stop()
	r.await(t, "the first", func(m metrics.Tally) bool { return m.Completed > 0 })
	if _, connections := r.Saturated(); connections {
		return errors.New("saturated from the start")
	}
	server.Stall(time.Second)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, connections := r.Saturated(); !connections {
			return fmt.Errorf("not reported as saturated")
		}
		return nil
	})
	stop()
	if got := r.balance(t); got.Skipped[metrics.Late] < 200 {
		t.Errorf("%d skipped; a queue of 50 cannot have held the 500 of a second's stall", got.Skipped[metrics.Late])
	}
	return nil
}

func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		now                    reading
		generator, connections bool
	}{
		"nothing due":             {reading{}, false, false},
		"in order":                {reading{1000, 20, 40}, false, false},
		"the driver is late":      {reading{1000, 400, 410}, true, false},
		"the connections are few": {reading{1000, 10, 900}, false, true},
		"both":                    {reading{1000, 300, 900}, true, true},
	} {
		if g, s := judge(reading{}, c.now); g != c.generator || s != c.connections {
			t.Errorf("%s: generator %v, connections %v", name, g, s)
		}
	}
}

// Late transactions are skipped if configured, counted, and slow.
func TestLatencyLimitSkips(t *testing.T) {
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), LatencyLimit: 200 * time.Millisecond})
	stop := r.start(t)
	r.await(t, "100 transactions", func(m metrics.Tally) bool { return m.Completed >= 100 })
	server.Stall(time.Second)
	r.await(t, "the skips", func(m metrics.Tally) bool { return m.Skipped[metrics.Late] >= 100 })
	stop()
	got := r.balance(t)
	if got.Response.Above(19*time.Second) != got.Skipped[metrics.Late] {
		t.Errorf("%d skipped, %d counted as slow", got.Skipped[metrics.Late], got.Response.Above(19*time.Second))
	}
}

// A transaction that takes too long fails, slow, and its connection is replaced.
func TestTimeout(t *testing.T) {
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), Timeout: 300 * time.Millisecond})
	stop := r.start(t)
	r.await(t, "100 transactions", func(m metrics.Tally) bool { return m.Completed >= 100 })
	server.Stall(time.Second)
	r.await(t, "time-outs", func(m metrics.Tally) bool { return m.Errors[metrics.Timeout] >= 4 })
	before := r.load.Tally().Completed
	r.await(t, "recovery", func(m metrics.Tally) bool { return m.Completed >= before+100 })
	stop()
	r.balance(t)
}

func TestBadConfig(t *testing.T) {
	registry := prometheus.NewRegistry()
	load := metrics.NewSet(registry).Load(metrics.Labels{Tool: "canary"}, metrics.Options{})
	own := NewOwnMetrics(registry)
	good := Config{Engine: "postgres", Profile: "kv-select", Scale: 1, Rate: 1, Connections: 1, Timeout: time.Second, Queue: 1}
	for want, change := range map[string]func(*Config){
		"unknown profile": func(c *Config) { c.Profile = "tpc-h" },
		"unknown engine":  func(c *Config) { c.Engine = "oracle" },
		"above 0":         func(c *Config) { c.Rate = 0 },
		"connection":      func(c *Config) { c.Engine, c.DSN = "mysql", "root:hush@" },
	} {
		c := good
		change(&c)
		_, err := New(c, load, own, slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hush") {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}
