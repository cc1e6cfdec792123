package soak

import (
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

// unreached is the time in which a load could not begin because its class was not reached. Nothing was due in it, so that
// the driver knows of no outage.
type unreached struct {
	from     time.Time // of the first try that failed
	until    time.Time // of the try that did not, if there was one
	failures uint64
}

// tried notes a try to make the tables.
func (u *unreached) tried(began time.Time, err error) error {
	switch {
	case err == nil:
		u.until = began
	case u.failures == 0:
		u.from = began
		fallthrough
	default:
		u.failures++
	}
	return err
}

// outage is that time, and whether there was any.
func (u *unreached) outage(now time.Time) (o result.Outage, any bool) {
	over := !u.until.IsZero()
	if over {
		now = u.until
	}
	return result.Outage{Began: u.from.UTC(), Seconds: now.Sub(u.from).Seconds(), Over: over,
		Errors: map[string]uint64{string(metrics.Connection): u.failures}}, u.failures > 0
}

// keepUnreached writes it, as a sample without a transaction.
func (s *Soak) keepUnreached(load, class string, u *unreached) {
	now := time.Now()
	if o, any := u.outage(now); any {
		s.saved(s.store.sample(Sample{Time: now.UTC(), StorageClass: class, Load: load, Outages: []result.Outage{o}}))
	}
}
