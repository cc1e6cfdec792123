package exporterkit

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// maxStanding bounds what is remembered of a collector's error.
const maxStanding = 4 << 10

// member is one collector of a Set.
type member struct {
	name string
	set  *Set

	mu        sync.Mutex
	collector Collector
	running   *run // the Update under way; nil if none is
	counts    counts
	// panicked is the panic that was counted last: a collector that runs in the background may report one panic at each
	// scrape.
	panicked *panicError
	// standing is the text of the error that was logged last; empty if there is none or it is over.
	standing string
}

// counts are a collector's since the start.
type counts struct{ panics, timeouts, dropped uint64 }

// run is one call of a collector's Update, shared by the scrapes that come while it is in time.
type run struct {
	began   time.Time
	settled chan struct{} // closed once answer is set
	answer  answer
	late    bool // settled without having returned; member.mu is held
}

// answer is what the scrapes get of a run. It does not change after the run is settled.
type answer struct {
	series []*series
	err    error
	late   bool
	took   time.Duration
}

// update is one scrape's part in a run: joined is false if the run was given up before.
type update struct {
	*run
	joined bool
}

// errGone is the error of an Update that ended its goroutine instead of returning.
var errGone = errors.New("collector ended its goroutine without an answer")

func (m *member) replace(c Collector) {
	m.mu.Lock()
	defer m.mu.Unlock()
	// What the old one still has under way ends by itself.
	m.collector, m.running = c, nil
}

// request starts an Update, or joins the one under way.
func (m *member) request() *update {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.running == nil {
		m.running = &run{began: time.Now(), settled: make(chan struct{})}
		go m.follow(m.running, m.collector)
	}
	return &update{m.running, !m.running.late}
}

// count adds to a collector's counts and returns them.
func (m *member) count(late bool, dropped uint64) counts {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.counts.dropped += dropped
	if late {
		m.counts.timeouts++
	}
	return m.counts
}

// follow runs one Update and receives what it sends until it returns, however late: nothing that
// it sends waits for a scrape that is gone, so that it can always end.
func (m *member) follow(r *run, c Collector) {
	sent := make(chan prometheus.Metric, 64)
	result := errGone
	go func() {
		defer close(sent)
		result = Recovered(func() error { return c.Update(sent) })
	}()
	deadline := time.NewTimer(m.set.timeout)
	defer deadline.Stop()
	rendered := newRendering(m.name, m.set.limit, m.set.once)
	for {
		select {
		case metric, more := <-sent:
			if more {
				rendered.add(metric)
				continue
			}
			m.finish(r, rendered, result)
			return
		case <-deadline.C:
			m.giveUp(r, rendered)
			for range sent {
			}
			m.cameLate(r, result)
			return
		}
	}
}

// finish settles a run whose Update has returned in time.
func (m *member) finish(r *run, rendered *rendering, err error) {
	m.logResult(err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countResult(rendered.dropped, err)
	r.answer = answer{series: rendered.kept, err: err, took: time.Since(r.began)}
	if m.running == r {
		m.running = nil
	}
	close(r.settled)
}

// giveUp settles a run whose Update has not returned in time, with what it sent so far.
func (m *member) giveUp(r *run, rendered *rendering) {
	m.set.log.Error("collector does not answer; scrapes go on without it until it does", "collector", m.name, "timeout", m.set.timeout)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countResult(rendered.dropped, nil)
	r.late = true
	r.answer = answer{series: rendered.kept, late: true, took: time.Since(r.began)}
	close(r.settled)
}

// cameLate ends a run that was given up: the next scrape starts a new one.
func (m *member) cameLate(r *run, err error) {
	m.logResult(err)
	m.set.log.Info("collector returned after it was given up; the next scrape updates it again", "collector", m.name, "after", time.Since(r.began).Round(time.Millisecond))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.countResult(0, err)
	if m.running == r {
		m.running = nil
	}
}

// countResult counts what went wrong in an Update; m.mu is held.
func (m *member) countResult(dropped uint64, err error) {
	m.counts.dropped += dropped
	var panicked *panicError
	if errors.As(err, &panicked) && panicked != m.panicked {
		m.counts.panics++
		m.panicked = panicked
	}
}

// logResult logs how an Update ended. A lasting error, as while a server is away, is logged when it begins, when its
// text changes and when it is over, not at each scrape.
func (m *member) logResult(err error) {
	var panicked *panicError
	switch {
	case err == nil:
		m.recovered()
	case errors.Is(err, ErrNoData):
		m.recovered()
		m.set.log.Debug("collector has no data", "collector", m.name)
	case errors.As(err, &panicked):
		if m.set.once.first(m.name + " " + panicked.place) {
			m.set.log.Error("collector panicked; please report this", "collector", m.name, "panic", panicked.text, "stack", panicked.stack)
		}
	case m.stand(label.Text(printed(err), maxStanding)):
		m.set.log.Error("collector failed", "collector", m.name, "err", err)
	default:
		m.set.log.Debug("collector failed as before", "collector", m.name, "err", err)
	}
}

// stand remembers the text of an error and reports whether it differs from the one before.
func (m *member) stand(text string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	other := m.standing != text
	m.standing = text
	return other
}

// recovered logs that the error that was logged is over.
func (m *member) recovered() {
	m.mu.Lock()
	stood := m.standing != ""
	m.standing = ""
	m.mu.Unlock()
	if stood {
		m.set.log.Info("collector no longer fails", "collector", m.name)
	}
}
