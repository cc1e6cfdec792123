// Package exporterkit holds what every Plumbline exporter shares: the collector set with its
// self-metrics, and the HTTP server with TLS, authentication and a landing page.
package exporterkit

import (
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// ErrNoData is returned by a Collector that works but has no data (no such hardware, no server yet). It counts as
// success and is logged at debug level only.
var ErrNoData = errors.New("no data")

// Outcome is the error of a Collector that has sent n things: what went wrong, or ErrNoData if nothing did and there
// was nothing to send.
func Outcome(n int, errs ...error) error {
	if err := errors.Join(errs...); err != nil || n > 0 {
		return err
	}
	return ErrNoData
}

// Collector produces one family of metrics. Update sends what it knows to ch and
// returns an error if something is missing; what it sent before the error is kept.
// Update must not call a remote side: a background poll does that. It must not use ch
// after it has returned. It never runs twice at once.
type Collector interface {
	Update(ch chan<- prometheus.Metric) error
}

// DefaultTimeout is how long a scrape waits for a collector by default: below Prometheus' usual scrape_timeout of 10 s,
// and above what a healthy collector takes on a node that is short of CPUs. One that hangs costs a single scrape this
// time; later ones do not wait.
const DefaultTimeout = 5 * time.Second

// Set is a group of named collectors that fail independently: one that panics, hangs or sends
// series that cannot be exposed takes nothing of the others with it. It adds, for each of them,
// duration, success and what went wrong, see newSetDescs.
//
// A scrape waits for a collector until the Set's time-out and then answers with what it sent so
// far. Until that Update returns, scrapes answer without the collector at once; what it sends late
// is dropped. Scrapes at the same time share one Update.
//
// A Set is itself a prometheus.Collector; it is unchecked (it describes nothing), because
// its collectors' series come and go with what they observe.
type Set struct {
	log     *slog.Logger
	timeout time.Duration
	limit   int // of series of one collector
	once    *logOnce
	descs   setDescs

	mu      sync.RWMutex
	members map[string]*member
}

type setDescs struct{ duration, success, panics, timeouts, dropped *prometheus.Desc }

func newSetDescs() setDescs {
	return setDescs{
		duration: prometheus.NewDesc("plumbline_scrape_collector_duration_seconds",
			"Time a collector took to answer this scrape, in seconds; if it has not answered yet, the time since its update began.", []string{"collector"}, nil),
		success: prometheus.NewDesc("plumbline_scrape_collector_success",
			"Whether a collector answered this scrape without an error: 1 yes, 0 no.", []string{"collector"}, nil),
		panics: prometheus.NewDesc("plumbline_scrape_collector_panics_total",
			"Times a collector panicked; the next scrape updates it again.", []string{"collector"}, nil),
		timeouts: prometheus.NewDesc("plumbline_scrape_collector_timeouts_total",
			"Scrapes that were answered without all of a collector's series, because it had not returned in time or still has not since an earlier scrape.", []string{"collector"}, nil),
		dropped: prometheus.NewDesc("plumbline_scrape_collector_dropped_series_total",
			"Series of a collector that were left out of a scrape: malformed, sent before, of another type or help than their family, or too many.", []string{"collector"}, nil),
	}
}

// NewSet returns an empty Set with the default time-out.
func NewSet(log *slog.Logger) *Set { return NewSetWithTimeout(log, DefaultTimeout) }

// NewSetWithTimeout returns an empty Set whose scrapes wait for each collector until timeout.
func NewSetWithTimeout(log *slog.Logger, timeout time.Duration) *Set {
	return &Set{log: log, timeout: timeout, limit: maxSeries, once: newLogOnce(log), members: map[string]*member{}, descs: newSetDescs()}
}

// Add registers c under name. A second collector of the same name replaces the first.
func (s *Set) Add(name string, c Collector) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m := s.members[name]; m != nil {
		m.replace(c)
		return
	}
	s.members[name] = &member{name: name, set: s, collector: c}
}

// Describe implements prometheus.Collector.
func (s *Set) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector: it runs all collectors concurrently and sends their series in the order of
// the collectors' names. Of two equal series always the same one is kept.
func (s *Set) Collect(ch chan<- prometheus.Metric) {
	s.each(func(metric prometheus.Metric) { ch <- metric })
}

// each calls f with each metric, as Collect sends it.
func (s *Set) each(f func(prometheus.Metric)) {
	s.mu.RLock()
	members := make([]*member, 0, len(s.members))
	for _, m := range s.members {
		members = append(members, m)
	}
	s.mu.RUnlock()
	slices.SortFunc(members, func(a, b *member) int { return strings.Compare(a.name, b.name) })
	requested := make([]*update, len(members))
	for i, m := range members {
		requested[i] = m.request()
	}
	merged := newMerge(s.once)
	for i, m := range members {
		s.send(f, m, requested[i], merged)
	}
}

// send waits for one collector's answer and sends it.
func (s *Set) send(f func(prometheus.Metric), m *member, u *update, merged *merge) {
	result := answer{late: true}
	var took time.Duration
	if u.joined {
		<-u.settled
		result, took = u.answer, u.answer.took
	} else {
		// It was given up in an earlier scrape, and still runs.
		took = time.Since(u.began)
	}
	dropped := uint64(0)
	for _, metric := range result.series {
		if !merged.take(m.name, metric) {
			dropped++
			continue
		}
		f(metric)
	}
	ok := 1.0
	if result.late || result.err != nil && !errors.Is(result.err, ErrNoData) {
		ok = 0
	}
	count := m.count(result.late, dropped)
	f(prometheus.MustNewConstMetric(s.descs.duration, prometheus.GaugeValue, took.Seconds(), m.name))
	f(prometheus.MustNewConstMetric(s.descs.success, prometheus.GaugeValue, ok, m.name))
	f(prometheus.MustNewConstMetric(s.descs.panics, prometheus.CounterValue, float64(count.panics), m.name))
	f(prometheus.MustNewConstMetric(s.descs.timeouts, prometheus.CounterValue, float64(count.timeouts), m.name))
	f(prometheus.MustNewConstMetric(s.descs.dropped, prometheus.CounterValue, float64(count.dropped), m.name))
}

// Failed returns a Collector that could not start: every scrape reports err for it.
func Failed(err error) Collector { return failed{err} }

type failed struct{ err error }

func (f failed) Update(chan<- prometheus.Metric) error { return f.err }
