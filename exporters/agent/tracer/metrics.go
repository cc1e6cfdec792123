package tracer

import (
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/rules/layers"
)

// maxServers bounds the values of the label server of the trace collector's series, those of servers that ended
// less than collector.KeepTime ago included; more are counted as "other".
const maxServers = 4 * collector.MaxServers

// The trace collector's metrics. server is as in the query collector's; layer is one of the package layers, see
// docs/understand/tracing.md.
var (
	traceChains = prometheus.NewDesc("plumbline_trace_statements_total",
		"Statements of the sample that were followed through the layers, by how much of the chain is known: exact, ambiguous (several events would fit a step) or incomplete (a step's event is missing).",
		[]string{"server", "verdict"}, nil)
	traceReasons = prometheus.NewDesc("plumbline_trace_not_exact_total",
		"Statements of the sample whose chain is not exact, by reason; one may have several.", []string{"reason"}, nil)
	traceWaited = prometheus.NewDesc("plumbline_trace_waited_total",
		"Statements that waited for a file or another session, of which the sample is taken.", nil, nil)
	traceUnfollowed = prometheus.NewDesc("plumbline_trace_unfollowed_total",
		"Statements of the sample that were not followed, because too many waited for their events.", nil, nil)
	traceEvents = prometheus.NewDesc("plumbline_trace_events_total",
		"Events that the programs reported: statements, sleeps, block requests and operations of storage backends.", nil, nil)
	traceOverflow = prometheus.NewDesc("plumbline_trace_overflow_total",
		`Statements of the sample that are counted as server="other", because there are too many servers for series of their own.`, nil, nil)
	// With --trace.otlp-endpoint only.
	traceExported = prometheus.NewDesc("plumbline_trace_exported_total",
		"Traces that were sent by OTLP: of the sample, and of slow statements.", nil, nil)
	traceUnsent = prometheus.NewDesc("plumbline_trace_export_lost_total",
		"Traces that were not sent by OTLP, by reason: the endpoint did not take them (failed), or too many waited (queue_full).", []string{"reason"}, nil)
	traceLost = prometheus.NewDesc("plumbline_trace_events_lost_total",
		"Events that found no room in the ring; statements under way then are incomplete.", nil, nil)
)

// traceMetrics counts chains.
type traceMetrics struct {
	layers *prometheus.HistogramVec

	mu       sync.Mutex
	servers  map[string]time.Time // when each was running last, or had a chain
	overflow uint64
	verdicts map[traceVerdict]uint64
	reasons  map[trace.Reason]uint64
}

type traceVerdict struct {
	server  string
	verdict trace.Verdict
}

func newMetrics() *traceMetrics {
	return &traceMetrics{
		// Of each exact chain one observation for each layer that has a part; those of one statement add up to its duration.
		layers: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:                         "plumbline_statement_layer_seconds",
			Help:                         "Time that a statement waited for a layer, of statements of the sample whose chain is exact, in seconds: only requests that statements waited for. A statement's layers add up to its duration.",
			Buckets:                      nativehist.Bounds,
			NativeHistogramBucketFactor:  1.1,
			NativeHistogramZeroThreshold: 1e-9,
		}, []string{"server", "layer"}),
		servers: map[string]time.Time{}, verdicts: map[traceVerdict]uint64{}, reasons: map[trace.Reason]uint64{},
	}
}

// server is the label of a server, within bounds. A new one has all layers from the start, so that what it never waited
// for is known to be 0: growth cannot be seen in a layer whose first sample is an incident.
func (m *traceMetrics) server(label string, now time.Time) string {
	if _, known := m.servers[label]; !known && label != collector.OtherServer && len(m.servers) >= maxServers {
		m.overflow++
		label = collector.OtherServer
	}
	if _, known := m.servers[label]; !known {
		for _, layer := range layers.Names(layers.IsTraced) {
			m.layers.WithLabelValues(label, layer)
		}
	}
	m.servers[label] = now
	return label
}

// forget deletes the series of servers that ended long ago, when the query collector deletes its own.
func (m *traceMetrics) forget(running map[string]bool, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for label, last := range m.servers {
		switch {
		case running[label]:
			m.servers[label] = now
		case now.Sub(last) > collector.KeepTime && label != collector.OtherServer:
			delete(m.servers, label)
			maps.DeleteFunc(m.verdicts, func(v traceVerdict, _ uint64) bool { return v.server == label })
			m.layers.DeletePartialMatch(prometheus.Labels{"server": label})
		}
	}
}

// observe counts a chain.
func (m *traceMetrics) observe(c *trace.Chain, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	label := m.server(c.ServerName, now)
	m.verdicts[traceVerdict{label, c.Verdict()}]++
	for _, r := range c.Reasons {
		m.reasons[r]++
	}
	if c.Verdict() != trace.Exact {
		return
	}
	exemplar := prometheus.Labels{"trace_id": c.ID()}
	for layer, ns := range c.Root.Shares() {
		// The observers of a HistogramVec take exemplars.
		m.layers.WithLabelValues(label, layer).(prometheus.ExemplarObserver).ObserveWithExemplar(float64(ns)/1e9, exemplar)
	}
}

// send sends all series.
func (m *traceMetrics) send(ch chan<- prometheus.Metric, counts trace.Counts) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.layers.Collect(ch)
	for server := range m.servers {
		for _, v := range []trace.Verdict{trace.Exact, trace.Ambiguous, trace.Incomplete} {
			ch <- collector.Counter(traceChains, float64(m.verdicts[traceVerdict{server, v}]), server, string(v))
		}
	}
	for _, r := range trace.Reasons {
		ch <- collector.Counter(traceReasons, float64(m.reasons[r]), string(r))
	}
	ch <- collector.Counter(traceOverflow, float64(m.overflow))
	ch <- collector.Counter(traceWaited, float64(counts.Waited))
	ch <- collector.Counter(traceUnfollowed, float64(counts.Unfollowed))
	ch <- collector.Counter(traceEvents, float64(counts.Events))
	ch <- collector.Counter(traceLost, float64(counts.Lost))
}
