// Package metrics defines, once, the metrics every load tool of loadgen exports, and how an
// event becomes a number in them. The driver and each adapter only report events.
//
// All of them carry the labels tool, profile, database and storageclass. Counters live as long
// as the process and never go back, whatever happens to the tool behind them; every series
// exists, at zero, from the start, so that the first increase is seen.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Buckets are the classic buckets kept beside the native ones, in seconds, for those who cannot read native histograms
// (the rules for either kind) and for exact shares below a round threshold: six a decade, each at most two thirds above
// the one before, so that a quantile between two of them shows one that has become half as long again.
var Buckets = []float64{
	0.0002, 0.0003, 0.0005, 0.0007,
	0.001, 0.0015, 0.002, 0.003, 0.005, 0.007,
	0.01, 0.015, 0.02, 0.03, 0.05, 0.07,
	0.1, 0.15, 0.2, 0.3, 0.5, 0.7,
	1, 1.5, 2, 3, 5, 7, 10, 30,
}

// Labels identify one load.
type Labels struct {
	// Tool is the program that makes the load: canary, pgbench, sysbench, fio or k6.
	Tool string
	// Profile is what the load does, such as tpcb-like or select-only.
	Profile string
	// Database is what the load calls its target: a database, or the volume for fio.
	Database string
	// StorageClass is the storage class the server's data is on.
	StorageClass string
}

func (l Labels) values(more ...string) []string {
	return append([]string{l.Tool, l.Profile, l.Database, l.StorageClass}, more...)
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
	phase, address     *prometheus.GaugeVec
}

// NewSet registers the families with registry.
func NewSet(registry prometheus.Registerer) *Set {
	labels := []string{"tool", "profile", "database", "storageclass"}
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
			"Time from a transaction's intended start to its end, in seconds, waiting for its turn included. One that failed or was skipped counts with at least the penalty (--penalty), one that waited at the load's end (end) with the time it had waited. Empty for fio, k6 and closed loops, in which intended starts are not known."),
		service: histogram("loadgen_service_seconds",
			"Time from sending a transaction to its end, in seconds. Only completed ones."),
		offered: counter("loadgen_offered_total",
			"Transactions that were due, whatever became of them. A tool that logs only finished ones is counted when it does."),
		completed: counter("loadgen_completed_total", "Transactions that ended without an error."),
		skipped: counter("loadgen_skipped_total",
			"Transactions that were due but never sent, by reason: late (past the latency limit), down (the server was down), tool (the load tool was down by itself, which is no answer of the server and in no response time), end (it waited for a connection when the load ended). While a tool is down, target rate times the time down is counted.", "reason"),
		errors: counter("loadgen_errors_total",
			"Transactions that failed and connections that could not be made, by kind: connection, authentication (the server refuses the user, the password or the host), serialization, deadlock, timeout, read_only (the server takes no writes: a standby, or a primary that was made one), storage (the disk of the server, or of fio, is full, fails, or holds damaged data), other. What caused a failed connection counts, where the server reported it.", "kind"),
		restarts: counter("loadgen_restarts_total",
			"Times the tool was started again, by reason: exit, killed, start_failed, server_down.", "reason"),
		parseErrors: counter("loadgen_parse_errors_total",
			"Lines of the tool's output that could not be understood and were left out."),
		lost: counter("loadgen_lost_total",
			"Transactions the tool reports at its end but whose record did not reach loadgen."),
		reports: counter("loadgen_reports_total",
			"Progress reports read from the tool: its sign of life, also while no transaction ends."),
		late: counter("loadgen_late_total",
			"Completed transactions that were sent more than 10 ms after their intended start."),
		target: gauge("loadgen_target_rate", "Transactions per second the load is meant to offer. 0: as many as possible."),
		reported: gauge("loadgen_reported_rate",
			"Transactions per second by the tool's own last progress report; 0 while it is down."),
		address: gauge("loadgen_server_address_info",
			"Where the load's newest connection was answered from, as the server reports it: on PostgreSQL its address, on MySQL its host's name, which is its pod's; 1. It stays while no server can be reached, and follows to another one. None on Unix sockets.", "address", "port"),
		phase: gauge("loadgen_phase", "1 for the phase the load is in, 0 for the others: init, warmup, steady, down (no server takes the load: every transaction or connection fails by an error, for a second or more, or for 10 s if its kind is serialization, deadlock, timeout or other; loadgen_errors_total has the kind), stopped.", "phase"),
	}
}
