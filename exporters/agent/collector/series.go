package collector

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// invalidSeries counts series whose labels could not be sent as they were.
var invalidSeries atomic.Uint64

// Gauge returns a gauge's series.
func Gauge(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return constant(d, prometheus.GaugeValue, v, labels)
}

// Counter returns a counter's series.
func Counter(d *prometheus.Desc, v float64, labels ...string) prometheus.Metric {
	return constant(d, prometheus.CounterValue, v, labels)
}

// constant makes a series. What others wrote has been made fit for a label where it was read;
// a label that is none all the same is sanitized and counted, so that no mistake of that kind ends
// the agent or its scrapes.
func constant(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels []string) prometheus.Metric {
	m, err := prometheus.NewConstMetric(d, kind, v, labels...)
	if err == nil {
		return m
	}
	invalidSeries.Add(1)
	sanitized := make([]string, len(labels))
	for i, l := range labels {
		sanitized[i] = strings.ToValidUTF8(l, "\uFFFD")
	}
	if m, err = prometheus.NewConstMetric(d, kind, v, sanitized...); err == nil {
		return m
	}
	// The wrong number of labels: a mistake in the program, which a scrape reports.
	return prometheus.NewInvalidMetric(d, err)
}

// Self are the agent's numbers about itself. It exports
//
//	plumbline_agent_file_calls_hanging     gauge
//	plumbline_agent_file_calls_late_total  counter
//	plumbline_agent_invalid_series_total   counter
type Self struct {
	calls                  *untrusted.Calls
	hanging, late, invalid *prometheus.Desc
}

// NewSelf returns the numbers about the calls that the collectors make.
func NewSelf(calls *untrusted.Calls) *Self {
	return &Self{
		calls: calls,
		hanging: prometheus.NewDesc("plumbline_agent_file_calls_hanging",
			"Calls on other processes' files or memory that were not answered in time and still hang; each holds a thread of the agent.", nil, nil),
		late: prometheus.NewDesc("plumbline_agent_file_calls_late_total",
			"Calls on other processes' files or memory that were not answered in time.", nil, nil),
		invalid: prometheus.NewDesc("plumbline_agent_invalid_series_total",
			"Series with a label that is no UTF-8 or otherwise not fit, which was sanitized; never in a healthy agent.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (s *Self) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.hanging, s.late, s.invalid} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (s *Self) Collect(ch chan<- prometheus.Metric) {
	ch <- Gauge(s.hanging, float64(s.calls.Hanging()))
	ch <- Counter(s.late, float64(s.calls.Late()))
	ch <- Counter(s.invalid, float64(invalidSeries.Load()))
}
