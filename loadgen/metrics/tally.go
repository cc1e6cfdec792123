package metrics

import (
	"time"

	"github.com/plumbline/plumbline/loadgen/stats"
)

// Tally is what a load did so far, for printing a result without a Prometheus.
type Tally struct {
	Offered, Completed, Late, ParseErrors, Lost uint64
	Errors                                      map[ErrorKind]uint64
	Skipped                                     map[SkipReason]uint64
	Restarts                                    map[RestartReason]uint64
	// Carried are the completed ones that were due, or, where that is not known, sent, before the tally began.
	Carried uint64
	// Causes are why the tool ended by itself, and how often each.
	Causes            map[Cause]uint64
	Response, Service stats.Distribution
	Phase             Phase
}

// Cause is why a tool ended by itself, in its own words.
type Cause struct {
	Reason RestartReason
	Words  string
}

// mostCauses bounds how many causes are counted apart; more count as of other words.
const mostCauses = 10

func newTally(phase Phase) Tally {
	return Tally{Phase: phase, Causes: map[Cause]uint64{}, Errors: map[ErrorKind]uint64{}, Skipped: map[SkipReason]uint64{}, Restarts: map[RestartReason]uint64{}}
}

// Tally returns a copy of what was counted so far.
func (l *Load) Tally() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	t.Causes = clone(t.Causes)
	t.Errors, t.Skipped, t.Restarts = clone(t.Errors), clone(t.Skipped), clone(t.Restarts)
	t.Response, t.Service = t.Response.Clone(), t.Service.Clone()
	return t
}

// Unfit is how many transactions failed or were skipped, but for those that the load's end cut short.
func (t Tally) Unfit() uint64 {
	var n uint64
	for _, failed := range t.Errors {
		n += failed
	}
	for reason, skipped := range t.Skipped {
		if reason != End {
			n += skipped
		}
	}
	return n
}

func clone[K comparable](m map[K]uint64) map[K]uint64 {
	c := make(map[K]uint64, len(m))
	for k, v := range m {
		c[k] = v
	}
	return c
}

// CountFromSteady has the tally begin when the load next becomes steady, and returns when that was: zero if it was not
// yet.
func (l *Load) CountFromSteady() (began func() time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fromSteady, l.began = true, time.Time{}
	return func() time.Time {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.fromSteady {
			return time.Time{}
		}
		return l.began
	}
}

// begin starts the tally. The locks are held.
func (l *Load) begin() {
	if l.tally, l.began = newTally(l.tally.Phase), time.Now(); !l.reportedAt.IsZero() {
		l.began = l.reportedAt
	}
}

// ResetTally starts the tally afresh, as when the warm-up is over, and returns as of when. The metrics are not touched.
func (l *Load) ResetTally() time.Time {
	l.reporting.Lock()
	defer l.reporting.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begin()
	return l.began
}

// Take returns the tally and starts it afresh, with nothing lost between.
func (l *Load) Take() Tally {
	l.mu.Lock()
	defer l.mu.Unlock()
	t := l.tally
	l.tally = newTally(t.Phase)
	return t
}
