package soak

import (
	"context"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/driver"
	"github.com/plumbline/plumbline/loadgen/result"
)

// startGrace is for how long after a soak's beginning a database may still be starting, which is no outage then.
const startGrace = time.Minute

// unreached are the times in which a load could not begin because its class was not reached. Nothing was due in them,
// so that the driver knows of no outage. One begins when a try fails, and ends when one begins that does not.
type unreached struct {
	outages []result.Outage
}

// tried notes a try to make the tables.
func (u *unreached) tried(ctx context.Context, began, ended time.Time, err error) error {
	n := len(u.outages)
	down := n > 0 && !u.outages[n-1].Over
	atWork := err == nil || !driver.Unreached(err) && ended.Sub(began) >= adapter.LongTry
	if down && atWork {
		u.outages[n-1].Seconds, u.outages[n-1].Over = began.Sub(u.outages[n-1].Began).Seconds(), true
		down = false
	}
	if err == nil {
		return nil
	}
	if !down {
		u.outages = append(u.outages, result.Outage{Began: ended.UTC(), Errors: map[string]uint64{}})
		n = len(u.outages)
	}
	u.outages[n-1].Errors[string(adapter.Kind(ctx, err))]++
	return err
}

// until returns the outages. One that is not over lasts until now. A first one that is over shortly after the soak
// began is the database's own start, and left out.
func (u *unreached) until(now, began time.Time) []result.Outage {
	outages := u.outages
	if len(outages) == 0 {
		return nil
	}
	if last := &outages[len(outages)-1]; !last.Over {
		last.Seconds = now.Sub(last.Began).Seconds()
	}
	first := outages[0]
	if end := first.Began.Add(time.Duration(first.Seconds * float64(time.Second))); first.Over && !end.After(began.Add(startGrace)) {
		outages = outages[1:]
	}
	return outages
}

// keepUnreached writes them, as a sample without a transaction.
func (s *Soak) keepUnreached(load, class string, u *unreached) {
	now := time.Now()
	if outages := u.until(now, s.began); len(outages) > 0 {
		s.saved(s.store.sample(Sample{Time: now.UTC(), StorageClass: class, Load: load, Outages: outages}))
	}
}
