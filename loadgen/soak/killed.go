package soak

import (
	"maps"
	"slices"
	"time"
)

// Killed is the detail of a phase's end that nobody wrote, because the soak was killed in the phase.
const Killed = "the soak was killed in it; its end is the last sample before"

// endKilled adds the ends of the phases in which the soak was killed, if it was started again: their loads ended with
// it, at the last sample or shortly after. A fault stays in effect until the next start mends it.
func (d *Data) endKilled() {
	var events []Event
	open := map[string]time.Time{}
	for _, e := range d.Events {
		switch {
		case e.Kind == SoakEvent && e.What == Begin:
			last := d.lastSample(e.Time)
			for _, name := range slices.Sorted(maps.Keys(open)) {
				at := last
				if at.Before(open[name]) {
					at = open[name]
				}
				events = append(events, Event{at, PhaseEvent, name, End, Killed})
			}
			clear(open)
		case e.Kind == PhaseEvent && e.What == Begin:
			open[e.Name] = e.Time
		case e.Kind == PhaseEvent && e.What == End:
			delete(open, e.Name)
		}
		events = append(events, e)
	}
	d.Events = events
}

// lastSample is the time of the last sample before another, or the soak's beginning. The samples are in their order.
func (d *Data) lastSample(before time.Time) time.Time {
	i, _ := slices.BinarySearchFunc(d.Samples, before, func(s Sample, t time.Time) int { return s.Time.Compare(t) })
	if i == 0 {
		return d.Began
	}
	return d.Samples[i-1].Time
}
