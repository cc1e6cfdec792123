package metrics

import (
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// lateAfter is the wait from the intended start to sending from which a transaction is late.
const lateAfter = 10 * time.Millisecond

// Options tune one load.
type Options struct {
	// Target is the rate to be offered, in transactions per second.
	Target float64
	// Penalty is the least response time of a transaction that failed or was skipped before the load's end.
	Penalty time.Duration
	// NoResponse is for a tool that does not report intended starts: it has no response times, and
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
	// began is when the tally began, if somebody set it; fromSteady is whether it does when the load becomes steady.
	began      time.Time
	fromSteady bool
	// reportedAt is until when the tool has reported what it did, if it does so in reports; reporting is held while one
	// is counted.
	reportedAt time.Time
	reporting  sync.Mutex
	// reached are the labels of the last reported address, or nil.
	reached []string
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
	l.carried(response, 1)
	l.tally.Completed++
	if late {
		l.tally.Late++
	}
	l.tally.Response.Observe(response)
	l.tally.Service.Observe(service)
	l.mu.Unlock()
}

// Served counts n transactions that ended well and took service each, of a tool that does not report when they were
// meant to start: they have no response time. They must have been Offered.
func (l *Load) Served(service time.Duration, n uint64) {
	for range n {
		l.service.Observe(service.Seconds())
	}
	l.completed.Add(float64(n))
	l.mu.Lock()
	l.carried(service, n)
	l.tally.Completed += n
	l.tally.Service.ObserveN(service, n)
	l.mu.Unlock()
}

// carried notes that n transactions ended now that began so long ago. The lock is held.
func (l *Load) carried(ago time.Duration, n uint64) {
	if !l.began.IsZero() && time.Since(l.began) < ago {
		l.tally.Carried += n
	}
}

// Failed counts a transaction that was sent and failed, response after its intended start (0 if the tool does not
// report it). It is slow, however fast it failed, and the response time that it counts with is returned. It must have
// been Offered.
func (l *Load) Failed(kind ErrorKind, response time.Duration) time.Duration {
	l.Error(kind)
	return l.slow(response)
}

// Error counts an error that no offered transaction belongs to, such as a refused connection.
func (l *Load) Error(kind ErrorKind) {
	l.set.errors.WithLabelValues(l.labels.values(string(kind))...).Inc()
	l.mu.Lock()
	l.tally.Errors[kind]++
	l.mu.Unlock()
}

// Skipped counts a transaction that was due and not sent, response after its intended start (0 if the tool does not
// report it). It is slow, but for what the load's end cut short: of that so much is known; and for what the tool's own
// failure kept from being sent, of which nothing is. It must have been Offered.
func (l *Load) Skipped(reason SkipReason, response time.Duration) {
	l.set.skipped.WithLabelValues(l.labels.values(string(reason))...).Inc()
	l.mu.Lock()
	l.tally.Skipped[reason]++
	l.mu.Unlock()
	switch reason {
	case Tool:
	case End:
		l.responded(response)
	default:
		l.slow(response)
	}
}

func (l *Load) slow(response time.Duration) time.Duration {
	response = max(response, l.options.Penalty)
	l.responded(response)
	return response
}

func (l *Load) responded(response time.Duration) {
	if l.options.NoResponse {
		return
	}
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

// Ended notes that the tool ended by itself, and why. The words of a server that is down are its errors'.
func (l *Load) Ended(reason RestartReason, words string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	cause := Cause{reason, words}
	if l.tally.Causes[cause] == 0 && len(l.tally.Causes) >= mostCauses {
		cause.Words = "other causes"
	}
	l.tally.Causes[cause]++
}

// Report counts in one go what the tool did until a moment, of a tool that reports in intervals: a tally begins before
// or after one, at its moment.
func (l *Load) Report(until time.Time, count func()) {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	count()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reportedAt = until
}

// LastReport is the moment of the last report; zero of a tool that reports each event.
func (l *Load) LastReport() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.reportedAt
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

// Reached sets which server the load reaches now, by its address and port; "" is one that is not known.
func (l *Load) Reached(address, port string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var reached []string
	if address != "" {
		reached = l.labels.values(address, port)
	}
	if slices.Equal(reached, l.reached) {
		return
	}
	if l.reached != nil {
		l.set.address.DeleteLabelValues(l.reached...)
	}
	if l.reached = reached; reached != nil {
		l.set.address.WithLabelValues(reached...).Set(1)
	}
}

// SetPhase sets the load's phase.
func (l *Load) SetPhase(now Phase) {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tally.Phase = now; now == Steady && l.fromSteady {
		l.begin()
		l.fromSteady = false
	}
	for _, p := range phases {
		value := 0.0
		if p == now {
			value = 1
		}
		l.set.phase.WithLabelValues(l.labels.values(string(p))...).Set(value)
	}
	if now == Stopped || now == Unserved {
		l.set.reported.WithLabelValues(l.labels.values()...).Set(0)
	}
}

// Phase returns where the load is now.
func (l *Load) Phase() Phase {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tally.Phase
}

// Labels returns the labels of the load.
func (l *Load) Labels() Labels { return l.labels }
