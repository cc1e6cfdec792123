// Package metrics defines, once, the metrics every load tool of loadgen exports, and how an
// event becomes a number in them. The driver and each adapter only report events.
//
// All of them carry the labels tool, profile, server and storageclass. Counters live as long
// as the process and never go back, whatever happens to the tool behind them; every series
// exists, at zero, from the start, so that the first increase is seen.
package metrics

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/internal/stats"
)

// Phase is where a load is in its life.
type Phase string

// The phases. Only a steady phase is fit for judging a regression.
const (
	Init    Phase = "init"    // tables are being made and filled
	Warmup  Phase = "warmup"  // running, but caches and connections are still cold
	Steady  Phase = "steady"  // running
	Stopped Phase = "stopped" // the tool is not running: not yet, not any more, or between two tries
)

// ErrorKind says what went wrong with a transaction or with the tool's connection.
type ErrorKind string

// The kinds of errors, a closed list to keep the label bounded.
const (
	Connection    ErrorKind = "connection"
	Serialization ErrorKind = "serialization"
	Deadlock      ErrorKind = "deadlock"
	Timeout       ErrorKind = "timeout"
	Other         ErrorKind = "other"
)

// SkipReason says why an offered transaction was never sent.
type SkipReason string

// The reasons for a skip.
const (
	Late SkipReason = "late" // its turn came after the latency limit, or the queue was full
	Down SkipReason = "down" // it fell due while the tool or the server was down
)

// RestartReason says why a tool had to be started again.
type RestartReason string

// The reasons for a restart.
const (
	Exited      RestartReason = "exit"         // it ended by itself
	Killed      RestartReason = "killed"       // a signal ended it
	StartFailed RestartReason = "start_failed" // it could not be started
	ServerDown  RestartReason = "server_down"  // the server refused or dropped its connections
)

var (
	phases         = []Phase{Init, Warmup, Steady, Stopped}
	errorKinds     = []ErrorKind{Connection, Serialization, Deadlock, Timeout, Other}
	skipReasons    = []SkipReason{Late, Down}
	restartReasons = []RestartReason{Exited, Killed, StartFailed, ServerDown}
)

// Buckets are the classic buckets kept beside the native ones, in seconds: few, for those
// who cannot read native histograms, and for exact shares below a round threshold.
var Buckets = []float64{0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10}

// lateAfter is the wait from the intended start to sending from which a transaction is late.
const lateAfter = 10 * time.Millisecond

// Labels identify one load.
type Labels struct {
	// Tool is the program that makes the load: canary, pgbench, sysbench, fio or k6.
	Tool string
	// Profile is what the load does, such as tpcb-like or select-only.
	Profile string
	// Server names the database server, or the volume for fio.
	Server string
	// StorageClass is the storage class the server's data is on.
	StorageClass string
}

func (l Labels) values(more ...string) []string {
	return append([]string{l.Tool, l.Profile, l.Server, l.StorageClass}, more...)
}

// Set is the metric families of a process; Load makes the series of one load in them.
type Set struct {
	response, service  *prometheus.HistogramVec
	offered, completed *prometheus.CounterVec
	skipped, errors    *prometheus.CounterVec
	restarts           *prometheus.CounterVec
	parseErrors, lost  *prometheus.CounterVec
	reports, late      *prometheus.CounterVec
	target, reported   *prometheus.GaugeVec
	phase              *prometheus.GaugeVec
}

// NewSet registers the families with registry.
func NewSet(registry prometheus.Registerer) *Set {
	labels := []string{"tool", "profile", "server", "storageclass"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(labels[:4:4], more...))
		registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append(labels[:4:4], more...))
		registry.MustRegister(g)
		return g
	}
	histogram := func(name, help string) *prometheus.HistogramVec {
		h := prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: name, Help: help, Buckets: Buckets,
			// 1.1 selects schema 3, eight buckets an octave, 9 % wide. From 1 us to the hour
			// that is 250 at the most, so no limit is set: a limit could only reset or blur.
			NativeHistogramBucketFactor:  1.1,
			NativeHistogramZeroThreshold: 1e-6,
		}, labels)
		registry.MustRegister(h)
		return h
	}
	return &Set{
		response: histogram("loadgen_response_seconds",
			"Time from a transaction's intended start to its end, in seconds, waiting for its turn included. One that failed or was skipped counts with at least the penalty (--penalty). Empty for fio, k6 and closed loops, in which intended starts are not known."),
		service: histogram("loadgen_service_seconds",
			"Time from sending a transaction to its end, in seconds. Only completed ones."),
		offered: counter("loadgen_offered_total",
			"Transactions that were due, whatever became of them. A tool that logs only finished ones is counted when it does."),
		completed: counter("loadgen_completed_total", "Transactions that ended without an error."),
		skipped: counter("loadgen_skipped_total",
			"Transactions that were due but never sent, by reason: late (past the latency limit), down (the tool or server was down; counted as target rate times the time down).", "reason"),
		errors: counter("loadgen_errors_total",
			"Transactions that failed and connections that could not be made, by kind: connection, serialization, deadlock, timeout, other.", "kind"),
		restarts: counter("loadgen_restarts_total",
			"Times the tool was started again, by reason: exit, killed, start_failed, server_down.", "reason"),
		parseErrors: counter("loadgen_parse_errors_total",
			"Lines of the tool's output that could not be understood and were left out."),
		lost: counter("loadgen_lost_total",
			"Transactions the tool says at its end it did but whose record did not reach loadgen."),
		reports: counter("loadgen_reports_total",
			"Progress reports read from the tool: its sign of life, also while no transaction ends."),
		late: counter("loadgen_late_total",
			"Completed transactions that were sent more than 10 ms after their intended start."),
		target: gauge("loadgen_target_rate", "Transactions per second the load is meant to offer. 0: as many as possible."),
		reported: gauge("loadgen_reported_rate",
			"Transactions per second by the tool's own last progress report; 0 while it is down."),
		phase: gauge("loadgen_phase", "1 for the phase the load is in, 0 for the others: init, warmup, steady, stopped.", "phase"),
	}
}

// Options tune one load.
type Options struct {
	// Target is the rate to be offered, in transactions per second.
	Target float64
	// Penalty is the least response time of a transaction that failed or was skipped.
	Penalty time.Duration
	// NoResponse is for a tool that does not tell intended starts: it has no response times, and
	// the penalty of a few failures must not stand there alone.
	NoResponse bool
}

// Load takes the events of one load. Its methods may be called side by side.
type Load struct {
	set     *Set
	labels  Labels
	options Options

	response, service  prometheus.Observer
	offered, completed prometheus.Counter
	late               prometheus.Counter

	mu    sync.Mutex
	tally Tally
}

// Tally is what a load did so far, for printing a result without a Prometheus.
type Tally struct {
	Offered, Completed, Late, ParseErrors, Lost uint64
	Errors                                      map[ErrorKind]uint64
	Skipped                                     map[SkipReason]uint64
	Restarts                                    map[RestartReason]uint64
	Response, Service                           stats.Distribution
	Phase                                       Phase
}

// Load makes the series of one load, all at zero, in phase stopped.
func (s *Set) Load(labels Labels, options Options) *Load {
	l := &Load{set: s, labels: labels, options: options, tally: newTally(Stopped)}
	v := labels.values()
	l.response, l.service = s.response.WithLabelValues(v...), s.service.WithLabelValues(v...)
	l.offered, l.completed = s.offered.WithLabelValues(v...), s.completed.WithLabelValues(v...)
	l.late = s.late.WithLabelValues(v...)
	for _, c := range []*prometheus.CounterVec{s.parseErrors, s.lost, s.reports, s.late} {
		c.WithLabelValues(v...)
	}
	for _, r := range skipReasons {
		s.skipped.WithLabelValues(labels.values(string(r))...)
	}
	for _, k := range errorKinds {
		s.errors.WithLabelValues(labels.values(string(k))...)
	}
	for _, r := range restartReasons {
		s.restarts.WithLabelValues(labels.values(string(r))...)
	}
	s.target.WithLabelValues(v...).Set(options.Target)
	s.reported.WithLabelValues(v...).Set(0)
	l.SetPhase(Stopped)
	return l
}

// Offered counts n transactions that became due.
func (l *Load) Offered(n uint64) {
	l.offered.Add(float64(n))
	l.mu.Lock()
	l.tally.Offered += n
	l.mu.Unlock()
}

// Completed counts a transaction that ended well: its time from the intended start and its
// time from sending. It must have been Offered.
func (l *Load) Completed(response, service time.Duration) {
	l.response.Observe(response.Seconds())
	l.service.Observe(service.Seconds())
	l.completed.Inc()
	late := response-service > lateAfter
	if late {
		l.late.Inc()
	}
	l.mu.Lock()
	l.tally.Completed++
	if late {
		l.tally.Late++
	}
	l.tally.Response.Observe(response)
	l.tally.Service.Observe(service)
	l.mu.Unlock()
}

// Served counts n transactions that ended well and took service each, of a tool that cannot
// tell when they were meant to start: they have no response time. They must have been Offered.
func (l *Load) Served(service time.Duration, n uint64) {
	for range n {
		l.service.Observe(service.Seconds())
	}
	l.completed.Add(float64(n))
	l.mu.Lock()
	l.tally.Completed += n
	l.tally.Service.ObserveN(service, n)
	l.mu.Unlock()
}

// Failed counts a transaction that was sent and failed, response after its intended start (0
// if the tool does not say). It is slow, however fast it failed. It must have been Offered.
func (l *Load) Failed(kind ErrorKind, response time.Duration) {
	l.Error(kind)
	l.slow(response)
}

// Error counts an error that no offered transaction belongs to, such as a refused connection.
func (l *Load) Error(kind ErrorKind) {
	l.set.errors.WithLabelValues(l.labels.values(string(kind))...).Inc()
	l.mu.Lock()
	l.tally.Errors[kind]++
	l.mu.Unlock()
}

// Skipped counts a transaction that was due and not sent, response after its intended start
// (0 if the tool does not say). It is slow. It must have been Offered.
func (l *Load) Skipped(reason SkipReason, response time.Duration) {
	l.set.skipped.WithLabelValues(l.labels.values(string(reason))...).Inc()
	l.mu.Lock()
	l.tally.Skipped[reason]++
	l.mu.Unlock()
	l.slow(response)
}

func (l *Load) slow(response time.Duration) {
	if l.options.NoResponse {
		return
	}
	response = max(response, l.options.Penalty)
	l.response.Observe(response.Seconds())
	l.mu.Lock()
	l.tally.Response.Observe(response)
	l.mu.Unlock()
}

// Restarted counts a new start of the tool.
func (l *Load) Restarted(reason RestartReason) {
	l.set.restarts.WithLabelValues(l.labels.values(string(reason))...).Inc()
	l.mu.Lock()
	l.tally.Restarts[reason]++
	l.mu.Unlock()
}

// ParseError counts a line of output that was not understood.
func (l *Load) ParseError() {
	l.set.parseErrors.WithLabelValues(l.labels.values()...).Inc()
	l.mu.Lock()
	l.tally.ParseErrors++
	l.mu.Unlock()
}

// Lost counts n transactions the tool did that were never seen here.
func (l *Load) Lost(n uint64) {
	l.set.lost.WithLabelValues(l.labels.values()...).Add(float64(n))
	l.mu.Lock()
	l.tally.Lost += n
	l.mu.Unlock()
}

// Reported takes a progress report of the tool: transactions per second.
func (l *Load) Reported(rate float64) {
	l.set.reports.WithLabelValues(l.labels.values()...).Inc()
	l.set.reported.WithLabelValues(l.labels.values()...).Set(rate)
}

// SetTarget changes the rate that is meant to be offered.
func (l *Load) SetTarget(rate float64) {
	l.set.target.WithLabelValues(l.labels.values()...).Set(rate)
}

// SetPhase says where the load is now.
func (l *Load) SetPhase(now Phase) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally.Phase = now
	for _, p := range phases {
		value := 0.0
		if p == now {
			value = 1
		}
		l.set.phase.WithLabelValues(l.labels.values(string(p))...).Set(value)
	}
	if now == Stopped {
		l.set.reported.WithLabelValues(l.labels.values()...).Set(0)
	}
}

// Tally returns a copy of what was counted so far.
func (l *Load) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	t.Errors, t.Skipped, t.Restarts = clone(t.Errors), clone(t.Skipped), clone(t.Restarts)
	t.Response, t.Service = t.Response.Clone(), t.Service.Clone()
	return t
}

func clone[K comparable](m map[K]uint64) map[K]uint64 {
	c := make(map[K]uint64, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// Phase returns where the load is now.
func (l *Load) Phase() Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.Phase
}

// Labels returns the labels of the load.
func (l *Load) Labels() Labels { return l.labels }

// ResetTally starts the tally afresh, as when the warm-up is over. The metrics are not touched.
func (l *Load) ResetTally() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.tally = newTally(l.tally.Phase)
}

func newTally(phase Phase) Tally {
	return Tally{Phase: phase, Errors: map[ErrorKind]uint64{}, Skipped: map[SkipReason]uint64{}, Restarts: map[RestartReason]uint64{}}
}

// Take returns the tally and starts it afresh, with nothing lost between.
func (l *Load) Take() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	l.tally = newTally(t.Phase)
	return t
}
