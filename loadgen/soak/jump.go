package soak

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// leastJump is from when on a difference between the wall clock and the time that has passed is reported.
const leastJump = 2 * time.Second

// Names of what happens to the machine that a soak runs on.
const (
	// Suspended is a time in which nothing ran on it, and nothing was due.
	Suspended = "suspended"
	// ClockSet is a step of its wall clock. Set forward, nothing was measured in between by the clock. Set back, the
	// same times come twice, and what is reported of them may be of either.
	ClockSet = "clock set"
)

// moment is one moment by three clocks: the wall's, one that stops while the machine is suspended, and one that does
// not.
type moment struct {
	wall         time.Time
	awake, since time.Duration
}

// presently is the moment that it is. The clocks are read one after the other, and again if that took long, as on a
// busy machine.
func presently() (m moment, err error) {
	for range 10 {
		if m.awake, err = clockTime(unix.CLOCK_MONOTONIC); err != nil {
			return m, err
		}
		if m.since, err = clockTime(unix.CLOCK_BOOTTIME); err != nil {
			return m, err
		}
		m.wall = time.Now().Round(0)
		if again, err := clockTime(unix.CLOCK_MONOTONIC); err != nil || again-m.awake < leastJump/10 {
			return m, err
		}
	}
	return m, nil
}

func clockTime(clock int32) (time.Duration, error) {
	var t unix.Timespec
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// jump returns what happened to the machine since another moment, with the times that it spoils; an empty name is
// nothing.
func (m moment) jump(before moment) (name, detail string, from, to time.Time) {
	awake := m.awake - before.awake
	suspended := m.since - before.since - awake
	set := m.wall.Sub(before.wall) - awake - suspended
	switch {
	case suspended >= leastJump && set.Abs() >= leastJump:
		name, detail = Suspended, fmt.Sprintf("for %s, and the clock was set by %s", suspended.Round(time.Second), set.Round(time.Second))
	case suspended >= leastJump:
		name, detail = Suspended, "for "+suspended.Round(time.Second).String()
	case set >= leastJump:
		name, detail = ClockSet, "forward by "+set.Round(time.Second).String()
	case set <= -leastJump:
		name, detail = ClockSet, "back by "+(-set).Round(time.Second).String()
	default:
		return "", "", from, to
	}
	from, to = before.wall, m.wall
	if to.Before(from) {
		from, to = to, from
	}
	return name, detail, from, to
}

// watch notes what happened to the machine since the moment before, and returns this one. A database has no part in
// that.
func (s *Soak) watch(before moment) moment {
	now, err := s.presently()
	if err != nil {
		s.log.Error("suspends and steps of the clock are not seen", "err", err)
		return before
	}
	if name, detail, from, to := now.jump(before); name != "" {
		s.log.Warn("soak: machine", "name", name, "detail", detail, "from", from, "to", to)
		s.saved(s.store.event(Event{from.UTC(), MachineEvent, name, Begin, detail}))
		s.saved(s.store.event(Event{to.UTC(), MachineEvent, name, End, ""}))
	}
	return now
}
