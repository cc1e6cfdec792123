package driver

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/stats"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
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
	base.LatencyLimit = config.LatencyLimit
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
func (r rig) start(t *testing.T) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func (r rig) await(t *testing.T, what string, is func(metrics.Tally) bool) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if tally := r.load.Tally(); !is(tally) {
			return fmt.Errorf("waiting for %s: offered %d, completed %d, errors %v, skipped %v", what, tally.Offered, tally.Completed, tally.Errors, tally.Skipped)
		}
		return nil
	})
}

// balance: nothing offered may be unaccounted for once the driver has ended.
func (r rig) balance(t *testing.T) metrics.Tally {
	t.Helper()
	got := r.load.Tally()
	ended := got.Completed + got.Skipped[metrics.Late] + got.Skipped[metrics.Down]
	for _, n := range got.Errors {
		ended += n
	}
	if got.Offered != ended || got.Response.Count() != got.Offered || got.Service.Count() != got.Completed {
		t.Errorf("offered %d, but completed %d, errors %v, skipped %v; %d response times", got.Offered, got.Completed, got.Errors, got.Skipped, got.Response.Count())
	}
	return got
}

// The reason for an open loop: a server that stalls for a second at 200/s holds up some 200
// transactions. The response time shows all of them, the service time only the few that were
// under way, and closed-loop pgbench beside it as few.
func TestStallIsSeen(t *testing.T) {
	server := testdb.StartStaller(t)
	const stall = time.Second
	r := newRig(t, Config{DSN: server.DSN()})

	folder := t.TempDir()
	script := filepath.Join(folder, "ping.sql")
	if err := os.WriteFile(script, []byte("SELECT 1;\n\\sleep 20 ms\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	closed := exec.Command(testkit.Tool(t, "pgbench"), "-n", "-f", script, "-c", "4", "-T", "1000000", "-l", "--log-prefix="+folder+"/log", server.LibpqDSN())
	closed.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := closed.Start(); err != nil {
		t.Fatal(err)
	}
	stop := r.start(t)
	r.await(t, "300 transactions", func(m metrics.Tally) bool { return m.Completed >= 300 })
	server.Stall(stall)
	r.await(t, "1000 transactions", func(m metrics.Tally) bool { return m.Completed >= 1000 })
	stop()
	_ = closed.Process.Signal(syscall.SIGALRM) // as its own timer: it ends in good order
	if err := closed.Wait(); err != nil {
		t.Fatal(err)
	}
	open := r.balance(t)
	closedLoop := pgbenchLatencies(t, folder)
	t.Logf("open loop: response p50 %v p99 %v, service p99 %v; closed-loop pgbench p99 %v, max %v of %d",
		open.Response.Quantile(0.5), open.Response.Quantile(0.99), open.Service.Quantile(0.99),
		closedLoop.Quantile(0.99), closedLoop.Max(), closedLoop.Count())

	if p99 := open.Response.Quantile(0.99); p99 < stall*3/4 || p99 > stall*3/2 {
		t.Errorf("response p99 is %v, want about the stall of %v", p99, stall)
	}
	if slow := open.Response.Above(stall / 10); slow < 120 || slow > 260 {
		t.Errorf("%d transactions waited over a tenth of the stall, want about 180", slow)
	}
	if slow := open.Service.Above(stall / 2); slow > 4 {
		t.Errorf("%d service times show the stall, but only 4 transactions can have been under way", slow)
	}
	if p99 := open.Service.Quantile(0.99); p99 > stall/4 {
		t.Errorf("service p99 is %v, moved by the stall", p99)
	}
	// A tenth of pgbench's own time was the stall, and it says that nothing happened.
	if p99 := closedLoop.Quantile(0.99); closedLoop.Max() < stall*3/4 || p99 > stall/4 {
		t.Errorf("closed-loop pgbench: max %v, p99 %v; it should hide the stall", closedLoop.Max(), p99)
	}
}

func pgbenchLatencies(t *testing.T, folder string) *stats.Distribution {
	t.Helper()
	logs, err := filepath.Glob(folder + "/log.*")
	if err != nil || len(logs) != 1 {
		t.Fatalf("pgbench's logs: %v, %v", logs, err)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	var d stats.Distribution
	for line := range strings.Lines(string(text)) {
		us, err := strconv.Atoi(strings.Fields(line)[2])
		if err != nil {
			t.Fatal(err)
		}
		// The script's own pause is no latency.
		d.Observe(time.Duration(us)*time.Microsecond - 20*time.Millisecond)
	}
	return &d
}

// The offered rate follows the plan whatever the server does.
func TestOfferedRate(t *testing.T) {
	server := testdb.StartStaller(t)
	for _, rate := range []float64{100, 2000} {
		t.Run(fmt.Sprint(rate), func(t *testing.T) {
			r := newRig(t, Config{DSN: server.DSN(), Rate: rate, Connections: 8})
			var before, after syscall.Rusage
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &before); err != nil {
				t.Fatal(err)
			}
			stop := r.start(t)
			r.await(t, "the first", func(m metrics.Tally) bool { return m.Offered > 0 })
			began, first := time.Now(), r.load.Tally().Offered
			var rates []float64
			for took := 0.0; took < 3; {
				time.Sleep(20 * time.Millisecond) // the distance of two readings
				took = time.Since(began).Seconds()
				if offered := r.load.Tally().Offered; took > 1.5 {
					rates = append(rates, float64(offered-first)/took)
				}
			}
			stop()
			if err := syscall.Getrusage(syscall.RUSAGE_SELF, &after); err != nil {
				t.Fatal(err)
			}
			got := r.balance(t)
			cpu := float64(after.Utime.Nano()+after.Stime.Nano()-before.Utime.Nano()-before.Stime.Nano()) / 1e9
			// The median: on a busy machine a single reading can be a scheduling delay late.
			slices.Sort(rates)
			offered := rates[len(rates)/2]
			t.Logf("offered %.2f/s of %g/s; response p99 %v; %.2f s CPU per 1,000 transactions, server included", offered, rate,
				got.Response.Quantile(0.99), cpu/float64(got.Completed)*1000)
			if math.Abs(offered/rate-1) > 0.01 {
				t.Errorf("offered %.2f/s, want %g/s within 1 %%", offered, rate)
			}
		})
	}
}

// More than the connections can take is said, and none of it is lost.
func TestSaturationIsSaid(t *testing.T) {
	server := testdb.StartStaller(t)
	r := newRig(t, Config{DSN: server.DSN(), Rate: 500, Connections: 1, Queue: 50})
	stop := r.start(t)
	r.await(t, "the first", func(m metrics.Tally) bool { return m.Completed > 0 })
	if _, connections := r.Saturated(); connections {
		t.Error("saturated from the start")
	}
	server.Stall(time.Second)
	testkit.Eventually(t, 20*time.Second, func() error {
		if _, connections := r.Saturated(); !connections {
			return fmt.Errorf("not said to be saturated")
		}
		return nil
	})
	stop()
	if got := r.balance(t); got.Skipped[metrics.Late] < 200 {
		t.Errorf("%d skipped; a queue of 50 cannot have held the 500 of a second's stall", got.Skipped[metrics.Late])
	}
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

// Late transactions are skipped if asked for, counted, and slow.
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

// Every profile does its work on both engines, through a restart of the server.
func TestProfilesOnRealServers(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartPostgres(t)
		profilesOn(t, "postgres", db.DSN(), db.Stop, db.Start, db.Count)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartMariaDB(t)
		profilesOn(t, "mysql", db.DSN(), db.Stop, db.Start, db.Count)
	})
}

func profilesOn(t *testing.T, engine, dsn string, stopServer, startServer func(), count func(string) int) {
	r := newRig(t, Config{Engine: engine, DSN: dsn, Profile: "kv-select"})
	for range 2 { // the second time there is nothing to do
		if err := r.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := count("select count(*) from loadgen_accounts"); n != accountsPerScale {
		t.Fatalf("%d accounts, want %d", n, accountsPerScale)
	}
	for name := range Profiles {
		rate := 100.0
		if name == "seqscan" {
			rate = 10
		}
		r := newRig(t, Config{Engine: engine, DSN: dsn, Profile: name, Rate: rate})
		stop := r.start(t)
		r.await(t, name, func(m metrics.Tally) bool { return m.Completed >= uint64(rate) })
		stop()
		if got := r.balance(t); len(got.Errors) > 0 {
			t.Errorf("%s: errors %v", name, got.Errors)
		}
	}
	if n := count("select count(*) from loadgen_history"); n != historyRows {
		t.Errorf("%d rows of history, want always %d", n, historyRows)
	}
	if sum := count("select cast(sum(balance) as int) from loadgen_accounts") - count("select cast(sum(balance) as int) from loadgen_branches"); sum != 0 {
		t.Errorf("accounts and branches differ by %d: a transaction was done by half", sum)
	}

	r = newRig(t, Config{Engine: engine, DSN: dsn, Profile: "tpcb-like", Rate: 100})
	stop := r.start(t)
	r.await(t, "a working load", func(m metrics.Tally) bool { return m.Completed >= 50 })
	stopServer()
	r.await(t, "errors", func(m metrics.Tally) bool { return m.Errors[metrics.Connection] >= 20 })
	startServer()
	before := r.load.Tally().Completed
	r.await(t, "recovery", func(m metrics.Tally) bool { return m.Completed >= before+100 })
	stop()
	got := r.balance(t)
	if failed := got.Offered - got.Completed; got.Response.Above(19*time.Second) != failed {
		t.Errorf("%d failed, %d counted as slow: one that fails fast is slow too", failed, got.Response.Above(19*time.Second))
	}
}

// Constant arrivals are exact for days; Poisson arrivals have the right mean and spread.
func TestSchedules(t *testing.T) {
	s := newSchedule(Constant, 3, nil)
	var last time.Duration
	for range 3*86400*10 + 1 {
		last = s.next()
	}
	if last != 10*24*time.Hour {
		t.Errorf("after ten days at 3/s the schedule is off by %v", last-10*24*time.Hour)
	}

	// Counts in intervals of a Poisson process have a Poisson distribution: chi square over the
	// cells 0…9 and more, at a mean of 5, 10,000 intervals.
	s = newSchedule(Poisson, 5, rand.New(rand.NewPCG(7, 7)))
	const intervals = 10000
	counts := make([]int, intervals)
	for at := s.next(); at < intervals*time.Second; at = s.next() {
		counts[int(at/time.Second)]++
	}
	var cells [11]float64
	for _, n := range counts {
		cells[min(n, 10)]++
	}
	p, rest, chi := math.Exp(-5), 1.0, 0.0
	for k := range cells {
		expected := p * intervals
		if k == 10 {
			expected = rest * intervals
		}
		chi += (cells[k] - expected) * (cells[k] - expected) / expected
		rest -= p
		p *= 5 / float64(k+1)
	}
	t.Logf("chi square %.1f with 10 degrees of freedom", chi)
	if chi > 29.6 { // one in a thousand; the seed is fixed
		t.Errorf("chi square %.1f: these are no Poisson arrivals", chi)
	}
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
