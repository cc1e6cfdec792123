package driver

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// window is how far back saturation is judged, in steps of one second.
	window = 10
	// slack is the delay of a transaction from which it counts as held up.
	slack = 5 * time.Millisecond
	// share of transactions held up in the window that counts as saturation.
	share = 0.05
	// complaintPause is the least time between two log lines on errors of one kind.
	complaintPause = 10 * time.Second
)

// OwnMetrics are what the driver reports of itself: whether it, not the server, is the bottleneck.
type OwnMetrics struct {
	lag       *prometheus.HistogramVec
	saturated *prometheus.GaugeVec
	queue     *prometheus.GaugeVec
	oldest    *prometheus.Desc
	without   *prometheus.CounterVec
	length    *prometheus.HistogramVec
	after     *prometheus.HistogramVec
	filled    *prometheus.GaugeVec

	mu    sync.Mutex
	loads []*ownMetrics
}

// NewOwnMetrics registers them with registry.
func NewOwnMetrics(registry prometheus.Registerer) *OwnMetrics {
	labels := []string{"tool", "profile", "database", "storageclass"}
	m := &OwnMetrics{
		lag: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "loadgen_dispatch_lag_seconds",
			Help: "How late the driver itself handed out a due transaction, in seconds: its own fault, not the server's. Part of the response time.",
			// Two classic buckets suffice: in order, and not.
			Buckets: []float64{0.001, slack.Seconds()}, NativeHistogramBucketFactor: 1.5, NativeHistogramZeroThreshold: 1e-6,
		}, labels),
		saturated: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadgen_saturated",
			Help: "1 if in the last 10 s more than 5 % of the transactions were held up by over 5 ms, by reason: generator (the driver was late: too little CPU), connections (all were busy: the server is slow, or more are needed).",
		}, append(labels[:4:4], "reason")),
		queue: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadgen_queue_length", Help: "Transactions that are due and wait for a connection.",
		}, labels),
		oldest: prometheus.NewDesc("loadgen_oldest_unanswered_seconds",
			"Age of the oldest transaction that is due and has no answer, from its intended start, in seconds; 0 if there is none. One that timed out here counts until the server answers another or refuses the connection; with --when-down=wait, one that waits for a server counts until it was sent and answered.", labels, nil),
		without: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "loadgen_without_commit_seconds_total",
			Help: "Seconds of outages, those under way included: from the intended start of the first transaction that failed (or from the last commit, if that was later) to the next commit. An error of the kind connection, authentication, timeout, read_only or storage is an outage by itself; errors of other kinds are one after 10 s, and ten of them, without a commit. On reads a commit is a transaction that ended well.",
		}, labels),
		length: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "loadgen_outage_seconds", Help: "How long each outage took that is over, in seconds: what loadgen_without_commit_seconds_total counts. One lost connection is an outage of a fraction of a second.",
			Buckets: []float64{0.1, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 900}, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: 1e-3,
		}, labels),
		after: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "loadgen_after_outage_response_seconds",
			Help:    "Response times, in seconds, of the transactions that were due in the minute after an outage of a second or more; counted in loadgen_response_seconds as well. What was due in the outage is only there.",
			Buckets: metrics.Buckets, NativeHistogramBucketFactor: 1.1, NativeHistogramZeroThreshold: 1e-6,
		}, labels),
		filled: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "loadgen_tables_filled_ratio", Help: "Share of the rows of loadgen's tables that are there, from 0 to 1; while it is below 1 they are being filled.",
		}, labels),
	}
	registry.MustRegister(m.lag, m.saturated, m.queue, m.without, m.length, m.after, m.filled, m)
	return m
}

// Describe and Collect give what is only known at the time of a scrape.
func (m *OwnMetrics) Describe(ch chan<- *prometheus.Desc) { ch <- m.oldest }

// Collect implements prometheus.Collector.
func (m *OwnMetrics) Collect(ch chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now, ages := time.Now(), map[[4]string]time.Duration{}
	for _, o := range m.loads {
		ages[o.labels] = max(ages[o.labels], o.unanswered.age(now))
	}
	for l, age := range ages {
		ch <- prometheus.MustNewConstMetric(m.oldest, prometheus.GaugeValue, age.Seconds(), l[:]...)
	}
}

// ownMetrics are those of one load.
type ownMetrics struct {
	lag                    prometheus.Observer
	generator, connections prometheus.Gauge
	queue                  prometheus.Gauge
	labels                 [4]string
	unanswered             unanswered
	outages                outages
	filled                 prometheus.Gauge
	ended                  atomic.Bool // no transaction will be due any more

	due, lagged, held atomic.Uint64
	saturation        atomic.Uint32 // bit 0 generator, bit 1 connections; bits 2, 3 the same, ever

	mu         sync.Mutex
	complained map[metrics.ErrorKind]time.Time
}

func (m *OwnMetrics) load(l metrics.Labels) *ownMetrics {
	v := []string{l.Tool, l.Profile, l.Database, l.StorageClass}
	o := &ownMetrics{
		lag:         m.lag.WithLabelValues(v...),
		generator:   m.saturated.WithLabelValues(append(v[:4:4], "generator")...),
		connections: m.saturated.WithLabelValues(append(v[:4:4], "connections")...),
		queue:       m.queue.WithLabelValues(v...),
		labels:      [4]string(v),
		complained:  map[metrics.ErrorKind]time.Time{},
		filled:      m.filled.WithLabelValues(v...),
	}
	o.outages.without, o.outages.length, o.outages.after = m.without.WithLabelValues(v...), m.length.WithLabelValues(v...), m.after.WithLabelValues(v...)
	m.mu.Lock()
	defer m.mu.Unlock()
	// A load that takes another's place, as in a soak.
	m.loads = slices.DeleteFunc(m.loads, func(old *ownMetrics) bool { return old.labels == o.labels && old.ended.Load() })
	m.loads = append(m.loads, o)
	return o
}

// dispatched notes a transaction handed out lag after it was due.
func (o *ownMetrics) dispatched(lag time.Duration) {
	o.lag.Observe(lag.Seconds())
	o.due.Add(1)
	if lag > slack {
		o.lagged.Add(1)
	}
}

// waited notes a transaction that reached a connection wait after it was due.
func (o *ownMetrics) waited(wait time.Duration) {
	if wait > slack {
		o.held.Add(1)
	}
}

// reading is the counts at one second.
type reading struct{ due, lagged, held uint64 }

// watch judges saturation once a second until ctx ends.
func (o *ownMetrics) watch(ctx context.Context, log *slog.Logger, waiting func() int, check func(time.Time)) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	var ring [window]reading
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := reading{o.due.Load(), o.lagged.Load(), o.held.Load()}
		then := ring[i%window]
		ring[i%window] = now
		o.queue.Set(float64(waiting()))
		o.outages.tick(time.Now())
		check(time.Now())
		generator, connections := judge(then, now)
		o.report(log, 1, generator, o.generator, "the driver cannot keep its schedule: too little CPU; response times include its delay")
		o.report(log, 2, connections, o.connections, "transactions wait for a free connection")
	}
}

// judge reports who held up too many transactions between two readings. What the driver itself
// delayed is not blamed on the connections.
func judge(then, now reading) (generator, connections bool) {
	due := float64(now.due - then.due)
	lagged, held := float64(now.lagged-then.lagged), float64(now.held-then.held)
	return due > 0 && lagged > share*due, due > 0 && held-lagged > share*due
}

func (o *ownMetrics) report(log *slog.Logger, bit uint32, is bool, gauge prometheus.Gauge, what string) {
	was := o.saturation.Load()&bit != 0
	if !is {
		gauge.Set(0)
		o.saturation.And(^bit)
		return
	}
	gauge.Set(1)
	o.saturation.Or(bit | bit<<2)
	if !was {
		log.Warn("saturated: " + what)
	}
}

// Saturated reports whether, since the start, the generator or the connections ever held the load up.
func (d *Driver) Saturated() (generator, connections bool) {
	s := d.own.saturation.Load()
	return s&4 != 0, s&8 != 0
}

// complain logs an error, but not each of a flood.
func (o *ownMetrics) complain(log *slog.Logger, kind metrics.ErrorKind, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if time.Since(o.complained[kind]) < complaintPause {
		return
	}
	o.complained[kind] = time.Now()
	log.Warn("transaction failed; more of the kind within 10 s are only counted", "kind", string(kind), "err", err)
}
