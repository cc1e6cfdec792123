package collector

import (
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
)

// v1Window is how long a V1 engine counts before it publishes and starts again
// (longhorn-engine pkg/controller/control.go, metricsStart). The real window is this plus
// however late the engine's timer fires, never less.
const v1Window = time.Second

// v2Window is how often the SPDK engine publishes rates (longhorn-spdk-engine pkg/spdk/server.go).
const v2Window = 3 * time.Second

// sampled holds counters integrated from an engine's windows.
type sampled struct {
	reads, writes               float64
	readBytes, writtenBytes     float64
	readSeconds, writtenSeconds float64
	// gap is the time that no window we saw covers.
	gap time.Duration

	last     *enginerpc.Metrics
	lastTime time.Time
}

// addWindow adds what a V1 engine published, as seen at time now: counts and mean
// nanoseconds of the last complete window.
//
// Windows carry no number, so we poll a little faster than they change and recognise a
// window seen twice by its content: under load two windows never have the same six values
// (two of them are nanoseconds), and adding an idle window twice adds nothing.
func (s *sampled) addWindow(m *enginerpc.Metrics, now time.Time) {
	s.advance(now, v1Window)
	if s.last != nil && sameMetrics(s.last, m) {
		return
	}
	s.last = m
	s.add(m, 1)
}

// addRates adds what the SPDK engine published: rates per second, valid until now.
func (s *sampled) addRates(m *enginerpc.Metrics, now time.Time) {
	elapsed := s.advance(now, v2Window)
	s.last = m
	s.add(m, min(elapsed, v2Window).Seconds())
}

// advance notes the time of a poll, counts what lies further back than one window as gap,
// and returns the time since the poll before (nothing for the first).
func (s *sampled) advance(now time.Time, window time.Duration) time.Duration {
	if s.lastTime.IsZero() {
		s.lastTime = now
		return 0
	}
	elapsed := now.Sub(s.lastTime)
	s.lastTime = now
	if elapsed > window {
		s.gap += elapsed - window
	}
	return elapsed
}

func (s *sampled) add(m *enginerpc.Metrics, factor float64) {
	reads, writes := float64(m.ReadIOPS)*factor, float64(m.WriteIOPS)*factor
	s.reads += reads
	s.writes += writes
	s.readBytes += float64(m.ReadThroughput) * factor
	s.writtenBytes += float64(m.WriteThroughput) * factor
	s.readSeconds += reads * float64(m.ReadLatency) / 1e9
	s.writtenSeconds += writes * float64(m.WriteLatency) / 1e9
}

const (
	// maxRate and maxThroughput bound what an engine may report for a second, maxLatency for one operation.
	maxRate, maxThroughput = 1_000_000_000, 1 << 50
	maxLatency             = uint64(24 * time.Hour)
)

// checkMetrics returns an error for impossible values of a window or rate. Once added, they would stay in the counters
// for ever.
func checkMetrics(m *enginerpc.Metrics) error {
	switch {
	case m.ReadIOPS > maxRate || m.WriteIOPS > maxRate:
		return badAnswer("%d reads and %d writes a second", m.ReadIOPS, m.WriteIOPS)
	case m.ReadThroughput > maxThroughput || m.WriteThroughput > maxThroughput:
		return badAnswer("%d bytes read and %d written a second", m.ReadThroughput, m.WriteThroughput)
	case m.ReadLatency > maxLatency || m.WriteLatency > maxLatency:
		return badAnswer("latencies of %d and %d ns", m.ReadLatency, m.WriteLatency)
	}
	return nil
}

func sameMetrics(a, b *enginerpc.Metrics) bool {
	return a.ReadIOPS == b.ReadIOPS && a.WriteIOPS == b.WriteIOPS &&
		a.ReadThroughput == b.ReadThroughput && a.WriteThroughput == b.WriteThroughput &&
		a.ReadLatency == b.ReadLatency && a.WriteLatency == b.WriteLatency
}
