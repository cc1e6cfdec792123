package soak

import (
	"context"
	"sync"
)

const (
	// Over is the detail of a soak's end that came with the end of its plan.
	Over = "over"
	// missed and unrecorded are the details of a fault that was never done.
	missed     = "its time came while the soak was not running"
	unrecorded = "its beginning could not be written to the soak's folder, and so it was not done"
)

// isOver reports whether a soak has run to the end of its plan.
func isOver(events []Event) bool {
	for _, e := range events {
		if e.endsPlan() {
			return true
		}
	}
	return false
}

// endsPlan reports whether it is the end of a soak that came with the end of its plan.
func (e Event) endsPlan() bool { return e.Kind == SoakEvent && e.What == End && e.Detail == Over }

// stay does nothing more in a soak that is over, but mend what was not mended, until ctx ends: who starts it again and
// again, as a cluster does, shall find it running.
func (s *Soak) stay(ctx context.Context) error {
	s.log.Info("the soak is over: nothing more is measured or recorded; its metrics are served until it is stopped. For another soak take another folder",
		"began", s.began, "ended", s.began.Add(s.plan.Duration))
	s.progress.Set(1)
	var mending sync.WaitGroup
	for _, f := range s.plan.Faults {
		mending.Go(func() { s.fault(ctx, f) })
	}
	<-ctx.Done()
	mending.Wait()
	return s.store.close()
}

// endOver leaves out the starts of a soak that was over: they measured nothing, and what lies between them is no gap.
// The first one after the plan's end, of a soak that was killed before, ends the gap with the plan.
func (d *Data) endOver() {
	end := d.Began.Add(d.Plan.Duration)
	cut, over := d.lastSample(end).Add(2*d.Every).Before(end), false
	var events []Event
	for _, e := range d.Events {
		switch late := e.Time.After(end); {
		case over && (e.Kind == SoakEvent || e.Detail == missed):
			continue
		case late && e.Kind == SoakEvent && e.What == Begin:
			if !cut {
				continue
			}
			e.Time, cut = end, false
		}
		over = over || e.endsPlan()
		events = append(events, e)
	}
	d.Events = events
}
