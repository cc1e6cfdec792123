package trace

import (
	"fmt"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
)

const (
	// maxDepth bounds how many tasks may have waited for each other.
	maxDepth = 8
	// maxSleeps bounds the sleeps in a chain, maxSpans its steps: a read of a replicated volume has a dozen.
	maxSleeps = 2000
	maxSpans  = 5000
	// raceTime is how long before a task is off its CPU it may have been woken already, ns.
	raceTime = uint64(1e6)
)

// builder makes one chain.
type builder struct {
	*Joiner
	chain  *Chain
	sleeps int
	spans  int
}

// room reports whether the chain has room for one more step; the first one without room is noted.
func (b *builder) room() bool {
	if b.spans >= maxSpans {
		b.missing(TooLarge)
		return false
	}
	b.spans++
	return true
}

// put puts a step that nothing is below of below a span, if there is room.
func (b *builder) put(above *Span, layer string, what string, start, end uint64) {
	if b.room() {
		above.add(&Span{Layer: layer, What: what, Start: start, End: end})
	}
}

// missing notes why the chain is not exact.
func (b *builder) missing(r Reason) {
	if !slices.Contains(b.chain.Reasons, r) {
		b.chain.Reasons = append(b.chain.Reasons, r)
	}
}

// losses notes whether events were lost that may belong to what lies between two times.
func (b *builder) losses(from, to uint64) {
	for _, l := range b.lost {
		if l.from <= to+settling && l.to >= from {
			b.missing(LostEvents)
		}
	}
	b.forgot(&b.requests, from)
}

// forgot reports, and notes, whether events since a time had to make room.
func (b *builder) forgot(h *history, since uint64) bool {
	if h.forgotten <= since {
		return false
	}
	b.missing(Forgotten)
	return true
}

// chain follows a statement.
func (j *Joiner) chain(e *Event) *Chain {
	c := &Chain{Server: e.Owner, Command: e.Subtype, QueryID: int64(e.Offset), PID: e.Pid, Woken: e.Start, Root: &Span{Layer: layers.CPU, What: "statement", Start: e.Start, End: e.End}}
	if e.WokenOrIssued > 0 {
		c.Woken = min(e.WokenOrIssued, e.Start)
	}
	b := &builder{Joiner: j, chain: c, spans: 1}
	if e.Flags&flagTakenOver != 0 {
		b.missing(TakenOver)
	}
	b.losses(e.Start, e.End)
	// There is no event for the sleep that its bytes ended: no client had requested anything then.
	if e.RequestEndOrOnCpu > e.Start {
		b.put(c.Root, layers.Runqueue, "ready to run, to begin with", e.Start, e.RequestEndOrOnCpu)
	}
	b.waits(c.Root, e.Pid, 0)
	c.spans = b.spans
	return c
}

// waits puts a task's sleeps below a span.
func (b *builder) waits(s *Span, pid uint32, depth int) {
	if b.forgotten > s.Start {
		b.missing(Forgotten)
	}
	t := b.tasks[pid]
	if t == nil {
		return
	}
	b.forgot(&t.history, s.Start)
	t.each(s.Start, s.End, func(w *Event) {
		if b.sleeps++; b.sleeps > maxSleeps {
			b.missing(TooLarge)
			return
		}
		s.add(b.wait(w, depth))
	})
}

var waitNames = map[uint8]string{waitRead: "asleep in a read", waitWrite: "asleep in a write", waitSync: "asleep in a sync", waitClient: "the client", waitHelper: "asleep"}

// wait is one sleep, with what ended it below; nil if there is no room for it.
func (b *builder) wait(w *Event, depth int) *Span {
	if !b.room() {
		return nil
	}
	s := &Span{Layer: layers.Wait, What: "asleep, in no call on a file", Start: w.Start, End: w.End}
	if name := waitNames[w.Subtype]; name != "" {
		s.What = name
	}
	switch {
	case ofFile(w) || w.Subtype == waitHelper:
		s.Layer = layers.FileSystem
	case w.Subtype == waitClient:
		s.Layer = layers.Client
	}
	woken := min(max(w.WokenOrIssued, w.Start), w.End)
	b.put(s, layers.Runqueue, "woken, ready to run", woken, w.End)
	if woken == w.Start {
		return s
	}
	switch w.ReasonOrView {
	case wokenByRequest:
		r := b.byEnd[requestKey{w.Request, w.RequestEndOrOnCpu}]
		switch {
		case w.RequestEndOrOnCpu+raceTime < w.Start:
			// The task that ended it went to another CPU meanwhile, where its end was not noted: a later wake-up is not
			// that request's.
			b.missing(WakerUnknown)
		case r == nil:
			b.missing(RequestUnseen)
		default:
			s.add(b.request(r, layers.Queue, layers.Device))
		}
	case wokenBySignal, wokenByCall, wokenByKernel:
		b.task(s, w, woken, depth)
	case wokenUnseen, wokenByOther:
		if s.Layer == layers.FileSystem {
			b.missing(WakerUnknown)
		}
	}
	return s
}

// task puts the task that ended a sleep below it, with its own sleeps.
func (b *builder) task(s *Span, w *Event, woken uint64, depth int) {
	server := w.Flags&flagWakerServer != 0
	switch {
	case !server && s.Layer != layers.FileSystem:
		return // no process of the server: a client, a timer's or a pipe's other end
	case w.ReasonOrView == wokenByCall && s.Layer != layers.FileSystem:
		return // an interrupt during a call that wakes no task
	case depth >= maxDepth:
		b.missing(TooLarge)
		return
	case !b.room():
		return
	}
	waker := &Span{Layer: layers.FileSystem, What: fmt.Sprintf("task %d", w.Waker), Start: w.Start, End: woken}
	if server {
		waker.Layer, waker.What = layers.Wait, fmt.Sprintf("another session, task %d", w.Waker)
	} else if w.Flags&flagWakerHelper == 0 {
		b.missing(HelperUnknown)
	}
	b.waits(waker, w.Waker, depth+1)
	s.add(waker)
}

// isFlush reports whether a request is only a flush.
func isFlush(r *Event) bool { return r.Subtype == blockWrite && r.Size == 0 }

func blockName(r *Event) string {
	name := "other"
	switch r.Subtype {
	case blockRead:
		name = "read"
	case blockWrite:
		name = "write"
	case blockDiscard:
		name = "discard"
	}
	device := fmt.Sprintf("%d:%d", r.Owner>>20, r.Owner&(1<<20-1))
	if isFlush(r) {
		return "flush of " + device
	}
	return fmt.Sprintf("%s of %d bytes at %d of %s", name, r.Size, r.Offset, device)
}

// request is a block request, with what its device waited for below; nil if there is no room for it.
func (b *builder) request(r *Event, queue, device string) *Span {
	if !b.room() {
		return nil
	}
	s := &Span{Layer: queue, What: blockName(r), Start: r.Start, End: r.End}
	if isFlush(r) {
		// The device's flush is a request of its own, for all that wait for one.
		if f := b.flush(r, r.End); f != nil {
			b.put(s, device, "the device's flush", f.WokenOrIssued, f.End)
		} else {
			b.missing(FlushUnseen)
		}
		return s
	}
	issued := r.WokenOrIssued
	if r.Flags&flagFlushes != 0 {
		if f := b.flush(r, issued); f != nil {
			b.put(s, device, "the device's flush, before", f.WokenOrIssued, f.End)
		}
	}
	if issued == 0 {
		b.missing(RequestUnsplit)
		return s
	}
	if !b.room() {
		return s
	}
	d := &Span{Layer: device, What: "with the driver", Start: issued, End: r.End}
	if device == layers.Device {
		b.below(d, r)
	}
	s.add(d)
	return s
}

// flush returns the latest flush of a request's device that ended by a time within the request.
func (b *builder) flush(r *Event, until uint64) *Event {
	b.forgot(&b.flushes, r.Start)
	var found *Event
	b.flushes.each(r.Start, until+1, func(f *Event) {
		if f.Owner == r.Owner && f.End <= until && (found == nil || f.End > found.End) {
			found = f
		}
	})
	return found
}
