package soak

import (
	"context"
	"testing"
	"time"
)

// machine is a fake clock whose machine may be suspended in a wait: its timers stop meanwhile.
type machine struct {
	wall      time.Time
	waits     int
	longest   time.Duration
	suspended map[int]time.Duration // by the number of the wait
}

func (m *machine) now() time.Time { return m.wall }

func (m *machine) sleep(_ context.Context, d time.Duration) bool {
	m.waits++
	m.longest = max(m.longest, d)
	m.wall = m.wall.Add(d + m.suspended[m.waits])
	return true
}

// A time of the plan comes at most a minute late after a suspend of hours, and not too early after the clock was set
// back.
func TestPlanGoesByTheWallClock(t *testing.T) {
	for name, c := range map[string]struct {
		suspended map[int]time.Duration
		late      time.Duration
	}{
		"no suspend":       {nil, 0},
		"suspended before": {map[int]time.Duration{3: 2 * time.Hour}, 0},
		"suspended over":   {map[int]time.Duration{3: 30 * time.Hour}, 30*time.Hour + 3*time.Minute - 10*time.Hour},
		"set back":         {map[int]time.Duration{3: -2 * time.Hour}, 0},
	} {
		m := &machine{wall: evening, suspended: c.suspended}
		at := evening.Add(10 * time.Hour)
		if !(clock{m.now, m.sleep}).until(t.Context(), at) {
			t.Errorf("%s: the wait was ended", name)
		}
		if late := m.wall.Sub(at); late != c.late || m.longest > longestWait {
			t.Errorf("%s: %s late, want %s; the longest wait was of %s", name, late, c.late, m.longest)
		}
	}
}

// What has ended is not waited for, and a deadline that is past has come at once.
func TestClockEnds(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	if wallClock.until(ended, time.Now()) || wallClock.until(ended, time.Now().Add(time.Hour)) {
		t.Error("a wait that was ended was none")
	}
	past, cancel := wallClock.deadline(t.Context(), time.Now())
	defer cancel()
	if past.Err() == nil {
		t.Error("a deadline that is past has not come")
	}
	m := &machine{wall: evening}
	soon, cancel := clock{m.now, m.sleep}.deadline(t.Context(), evening.Add(time.Hour))
	defer cancel()
	<-soon.Done()
	if m.longest > longestWait {
		t.Errorf("the longest wait was of %s", m.longest)
	}
}
