// Package exporterkit holds what every Plumbline exporter shares: the collector set with its
// self-metrics, and the HTTP server with TLS, authentication and a landing page.
package exporterkit

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrNoData is returned by a Collector that works but has nothing to say (no such
// hardware, no server yet). It counts as success and is logged at debug level only.
var ErrNoData = errors.New("no data")

// Collector produces one family of metrics. Update sends what it knows to ch and
// returns an error if something is missing; what it sent before the error is kept.
// Update must not call a remote side: a background poll does that.
type Collector interface {
	Update(ch chan<- prometheus.Metric) error
}

// Set is a group of named collectors that fail independently. It adds, for each of them,
//
//	plumbline_scrape_collector_duration_seconds{collector}  gauge, seconds
//	plumbline_scrape_collector_success{collector}           gauge, 0 or 1
//
// A Set is itself a prometheus.Collector; it is unchecked (it describes nothing), because
// its collectors' series come and go with what they observe.
type Set struct {
	log        *slog.Logger
	mu         sync.RWMutex
	collectors map[string]Collector
	duration   *prometheus.Desc
	success    *prometheus.Desc
}

// NewSet returns an empty Set.
func NewSet(log *slog.Logger) *Set {
	return &Set{
		log:        log,
		collectors: map[string]Collector{},
		duration: prometheus.NewDesc("plumbline_scrape_collector_duration_seconds",
			"Time a collector took to answer this scrape, in seconds.", []string{"collector"}, nil),
		success: prometheus.NewDesc("plumbline_scrape_collector_success",
			"Whether a collector answered this scrape without an error: 1 yes, 0 no.", []string{"collector"}, nil),
	}
}

// Add registers c under name. A second collector of the same name replaces the first.
func (s *Set) Add(name string, c Collector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.collectors[name] = c
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: it runs every collector side by side.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var wg sync.WaitGroup
	for name, c := range s.collectors {
		wg.Go(func() { s.run(name, c, ch) })
	}
	wg.Wait()
}

func (s *Set) run(name string, c Collector, ch chan<- prometheus.Metric) {
	start := time.Now()
	err := c.Update(ch)
	took := time.Since(start).Seconds()
	ok := 1.0
	switch {
	case errors.Is(err, ErrNoData):
		s.log.Debug("collector has no data", "collector", name)
	case err != nil:
		ok = 0
		s.log.Error("collector failed", "collector", name, "err", err)
	}
	ch <- prometheus.MustNewConstMetric(s.duration, prometheus.GaugeValue, took, name)
	ch <- prometheus.MustNewConstMetric(s.success, prometheus.GaugeValue, ok, name)
}

// Failed returns a Collector that could not start: every scrape reports err for it.
func Failed(err error) Collector { return failed{err} }

type failed struct{ err error }

func (f failed) Update(chan<- prometheus.Metric) error { return f.err }
