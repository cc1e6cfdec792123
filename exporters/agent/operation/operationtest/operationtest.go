// Package operationtest reads what the collectors of replicas and of network volumes export, for tests.
package operationtest

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Meter reads collectors as Prometheus would.
type Meter struct {
	T        testing.TB
	Registry *prometheus.Registry
}

// NewMeter returns the meter of a registry of its own, which has no collector yet.
func NewMeter(t testing.TB) *Meter { return &Meter{T: t, Registry: prometheus.NewRegistry()} }

// Add has the meter read a collector, too, by its name.
func (m *Meter) Add(log *slog.Logger, name string, c exporterkit.Collector) {
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add(name, c)
	m.Registry.MustRegister(set)
}

// Reading is one scrape, by metric.
type Reading map[string]*dto.MetricFamily

// Read scrapes; the test fails if a collector does.
func (m *Meter) Read() Reading {
	m.T.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		m.T.Fatal(err)
	}
	r := Reading{}
	for _, f := range families {
		r[f.GetName()] = f
	}
	if s := r.Value("plumbline_scrape_collector_success", nil); s != 1 {
		m.T.Fatal("the scrape failed; see the log")
	}
	return r
}

// Match are labels and their values, of those that matter.
type Match map[string]string

// Each calls a function with each series of a metric that matches.
func (r Reading) Each(name string, want Match, do func(Match, *dto.Metric)) {
	for _, metric := range r[name].GetMetric() {
		got := Match(collectortest.Labels(metric))
		matches := true
		for k, v := range want {
			matches = matches && got[k] == v
		}
		if matches {
			do(got, metric)
		}
	}
}

// Value adds up counters and gauges.
func (r Reading) Value(name string, want Match) float64 {
	var sum float64
	r.Each(name, want, func(_ Match, m *dto.Metric) { sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() })
	return sum
}

// Count adds up histograms' counts.
func (r Reading) Count(name string, want Match) (n uint64) {
	r.Each(name, want, func(_ Match, m *dto.Metric) { n += m.GetHistogram().GetSampleCount() })
	return n
}

// Sum adds up histograms' sums.
func (r Reading) Sum(name string, want Match) (sum float64) {
	r.Each(name, want, func(_ Match, m *dto.Metric) { sum += m.GetHistogram().GetSampleSum() })
	return sum
}

// Mean is the mean of what a histogram got since an earlier reading.
func (r Reading) Mean(since Reading, name string, want Match) float64 {
	return (r.Sum(name, want) - since.Sum(name, want)) / float64(r.Count(name, want)-since.Count(name, want))
}

// Clean fails the test if anything was lost or not understood.
func (r Reading) Clean(t testing.TB) {
	t.Helper()
	for _, name := range []string{"plumbline_replica_lost_total", "plumbline_replica_resyncs_total", "plumbline_replica_unmatched_total",
		"plumbline_replica_unrecognised_total", "plumbline_replica_label_overflow_total", "plumbline_replica_process_errors_total"} {
		r.Each(name, nil, func(l Match, m *dto.Metric) {
			if v := m.GetCounter().GetValue(); v != 0 {
				t.Errorf("%s%v is %v", name, l, v)
			}
		})
	}
}

const (
	// RequestMetric is how long the engine waits for a replica.
	RequestMetric = "plumbline_replica_request_duration_seconds"
	// ServiceMetric is how long a replica takes.
	ServiceMetric = "plumbline_replica_service_seconds"
	// FrontendMetric is how long the engine takes.
	FrontendMetric = "plumbline_volume_frontend_seconds"
)

// inflight adds up what is under way in all views.
func (r Reading) inflight() float64 {
	return r.Value("plumbline_replica_requests_in_flight", nil) + r.Value("plumbline_replica_services_in_flight", nil) +
		r.Value("plumbline_volume_frontend_in_flight", nil)
}

// Eventually scrapes until a scrape is as wanted, and returns that; else the test fails with what is wrong.
func (m *Meter) Eventually(what string, ok func(Reading) bool) Reading {
	m.T.Helper()
	var r Reading
	testkit.Eventually(m.T, testkit.DefaultTimeout, func() error {
		r = m.Read()
		if !ok(r) {
			return errors.New(what)
		}
		return nil
	})
	return r
}

// Settled waits until nothing is under way: an answer is with its reader a little before the
// call that sent it returns and is counted.
func (m *Meter) Settled() Reading {
	m.T.Helper()
	return m.Eventually("operations are under way", func(r Reading) bool { return r.inflight() == 0 })
}

// Followed waits until the collector follows that many processes.
func (m *Meter) Followed(n int) {
	m.T.Helper()
	m.Eventually(fmt.Sprintf("%d processes followed", n), func(r Reading) bool {
		return r.Value("plumbline_replica_processes", nil) == float64(n)
	})
}
