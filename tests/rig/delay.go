package rig

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Delay is a time to hold something back, and how long that really was.
type Delay struct {
	mu    sync.Mutex
	delay time.Duration
	// draw, if not nil, gives each its own time.
	draw func() time.Duration
	// hung is closed when what hangs may continue; nil if nothing hangs.
	hung chan struct{}
	// held adds up how long each was held; busy is the time in which at least one was.
	held, busy time.Duration
	times      int
	open       int
	opened     time.Time
	// spans is when each was held, if keeping.
	spans   []Span
	keeping bool
}

// Span is from when until when something was held back.
type Span struct{ From, To time.Time }

// Overlap is how much of a span is within another one.
func (s Span) Overlap(o Span) time.Duration {
	from, to := s.From, s.To
	if o.From.After(from) {
		from = o.From
	}
	if o.To.Before(to) {
		to = o.To
	}
	return max(0, to.Sub(from))
}

// Spans returns when each was held back since the last call, and keeps that from the first call on.
func (d *Delay) Spans() []Span {
	d.mu.Lock()
	defer d.mu.Unlock()
	spans := d.spans
	d.spans, d.keeping = nil, true
	return spans
}

// Set changes the time to hold back what comes from now on.
func (d *Delay) Set(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.delay, d.draw = delay, nil
}

// SetBy has each of what comes from now on held back for a time that draw gives; it is called one at a time.
func (d *Delay) SetBy(draw func() time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.draw = draw
}

// Hang holds back what comes from now on until Release.
func (d *Delay) Hang() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung == nil {
		d.hung = make(chan struct{})
	}
}

// Release lets what hangs continue.
func (d *Delay) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.hung != nil {
		close(d.hung)
		d.hung = nil
	}
}

// Hold waits until the delay has passed since arrival: in the kernel, because Go's own timers
// are late by up to a millisecond.
func (d *Delay) Hold(arrival time.Time) {
	d.mu.Lock()
	delay := d.delay
	if d.draw != nil {
		delay = d.draw()
	}
	until := arrival.Add(delay)
	if d.open++; d.open == 1 {
		d.opened = time.Now()
	}
	hung := d.hung
	d.mu.Unlock()
	if hung != nil {
		<-hung
	}
	for {
		left := time.Until(until)
		if left <= 0 {
			break
		}
		pause := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&pause, nil) // a signal ends it early: check again
	}
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.keeping {
		d.spans = append(d.spans, Span{arrival, now})
	}
	d.held += now.Sub(arrival)
	d.times++
	if d.open--; d.open == 0 {
		d.busy += now.Sub(d.opened)
	}
}

// Held is what was held back since the last call.
type Held struct {
	// Sum adds up the times that each was held; Busy is the time in which at least one was.
	Sum, Busy time.Duration
	Times     int
}

// Mean is how long each was held, in seconds.
func (h Held) Mean() float64 { return h.Sum.Seconds() / float64(h.Times) }

// Take returns what was held back since the last call.
func (d *Delay) Take() Held {
	d.mu.Lock()
	defer d.mu.Unlock()
	h := Held{d.held, d.busy, d.times}
	d.held, d.busy, d.times = 0, 0, 0
	return h
}
