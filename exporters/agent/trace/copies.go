package trace

import (
	"maps"
	"math"
	"slices"

	"github.com/plumbline/plumbline/rules/layers"
)

// An engine's write goes to all its replicas, and is over when all have answered. An operation's event comes with its
// answer: there is none for a replica that does not answer. The replicas that the writes go to are therefore
// remembered, and requests without an answer are reported by Unanswered.

const (
	// missedKept is how long an engine's writes may go without one of its replicas before that is taken for gone, ns:
	// longer than an engine waits for an answer.
	missedKept = uint64(60e9)
	// maxWriters bounds the engines whose replicas are remembered, maxCopies those of one.
	maxWriters = 4096
	maxCopies  = 32
	// maxUnanswered bounds the requests without an answer.
	maxUnanswered = 4096
	// unansweredKept is how long a request is remembered that is not reported again, ns; one under way is reported each
	// second.
	unansweredKept = uint64(60e9)
)

// writer is an engine that writes.
type writer struct {
	last     uint64
	replicas map[replicaKey]*copying
}

// replicaKey is a replica as an engine's requests name it.
type replicaKey struct {
	peer uint32
	port uint16
}

// copying is when a replica was written to: first and last, and since when writes have been going without it; 0 if they
// have not.
type copying struct{ first, last, missed uint64 }

// unansweredKey identifies a request: its engine, replica, number and beginning.
type unansweredKey struct {
	of, peer       uint32
	request, start uint64
}

func keyOf(q *Event) unansweredKey { return unansweredKey{q.Owner, q.Peer, q.Request, q.Start} }

// addCopy notes an engine's request to a replica, which has been answered.
func (j *Joiner) addCopy(q *Event) {
	delete(j.unanswered, keyOf(q))
	if q.Subtype != opWrite {
		return
	}
	w := j.writers[q.Owner]
	if w == nil {
		if len(j.writers) >= maxWriters {
			delete(j.writers, oldest(j.writers, func(w *writer) uint64 { return w.last }))
		}
		w = &writer{replicas: map[replicaKey]*copying{}}
		j.writers[q.Owner] = w
	}
	w.last = max(w.last, q.End)
	key := replicaKey{q.Peer, q.RemotePort}
	c := w.replicas[key]
	if c == nil {
		if len(w.replicas) >= maxCopies {
			delete(w.replicas, oldest(w.replicas, func(c *copying) uint64 { return c.last }))
		}
		c = &copying{first: q.Start}
		w.replicas[key] = c
	}
	c.first, c.last = min(c.first, q.Start), max(c.last, q.Start)
}

// oldest returns the key whose value was used longest ago.
func oldest[K comparable, V any](m map[K]V, used func(V) uint64) K {
	return slices.MinFunc(slices.Collect(maps.Keys(m)), func(a, b K) int { return int(int64(used(m[a]) - used(m[b]))) })
}

// addWrite notes which replicas an engine's write went without: its requests to the others have been added before.
func (j *Joiner) addWrite(o *Event) {
	w := j.writers[o.Owner]
	if o.Subtype != opWrite || w == nil {
		return
	}
	for _, c := range w.replicas {
		switch {
		case c.last >= o.Start:
			c.missed = 0
		case c.missed == 0:
			c.missed = o.Start
		}
	}
}

// lacksCopies reports whether an engine's write should have gone to a replica that is not among those that answered.
func (j *Joiner) lacksCopies(o *Event, answered []*Event) bool {
	w := j.writers[o.Owner]
	if o.Subtype != opWrite || w == nil {
		return false
	}
	for key, c := range w.replicas {
		gone := c.missed != 0 && o.Start > c.missed+missedKept
		if c.first <= o.Start && !gone && !slices.ContainsFunc(answered, func(q *Event) bool { return key == replicaKey{q.Peer, q.RemotePort} }) {
			return true
		}
	}
	return false
}

// Unanswered adds an engine's request to a replica that had no answer until its end, or will never have one. The same
// request may be added again.
func (j *Joiner) Unanswered(q Event) {
	key := keyOf(&q)
	// It was answered while that was on its way here.
	answered := false
	j.operations[viewRequest].each(q.Start, math.MaxUint64, func(a *Event) { answered = answered || keyOf(a) == key })
	if answered {
		delete(j.unanswered, key)
		return
	}
	if j.unanswered[key] == nil && len(j.unanswered) >= maxUnanswered {
		j.Missed(q.Start, q.End)
		return
	}
	j.unanswered[key] = &q
}

// forgetUnanswered forgets the requests of long ago.
func (j *Joiner) forgetUnanswered(now uint64) {
	maps.DeleteFunc(j.unanswered, func(_ unansweredKey, q *Event) bool { return q.End+unansweredKept < now })
}

// unansweredCopies puts the unanswered requests of an engine's operation below it, as far as they are known, and
// reports whether there are any.
func (b *builder) unansweredCopies(s *Span, o *Event, answered []*Event) (any bool) {
	for key, q := range b.unanswered {
		if !isCopy(o, q) || q.Start > o.End || slices.ContainsFunc(answered, func(a *Event) bool { return keyOf(a) == key }) {
			continue
		}
		any = true
		b.put(s, layers.Network, "request to "+b.replica(q, q.RemotePort)+", without an answer", q.Start, q.End)
	}
	return any
}
