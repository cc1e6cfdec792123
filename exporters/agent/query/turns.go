package query

import (
	"slices"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
)

// trial is when a process that is not followed was scanned first, and last.
type trial struct{ first, last time.Time }

// due reports whether the process is to be scanned again: what is no server now may become one, but must not cost
// more and more.
func (t trial) due(now time.Time) bool {
	return now.Sub(t.last) >= min(now.Sub(t.first)/4, rescanInterval/10)
}

// due returns the candidates to scan now, and notes that it is done: the servers that are followed as their turn
// comes, and so many others that at most maxScans are scanned, first those that were never scanned or whose last
// scan is longest ago, so that each gets its turn however many there are. reported is true if the kernel reported them
// just now: these do not wait for scans that are under way. skipped are how many have to wait.
func (q *query) due(candidates []server.Candidate, reported bool, now time.Time) (due []server.Candidate, skipped int) {
	var others []server.Candidate
	for _, c := range candidates {
		t, tried := q.tried[c.ID]
		switch {
		case q.scans[c.ID]:
		case q.fleet.tracked[c.ID] != nil:
			if q.fleet.due(c.ID, now) {
				due = append(due, c)
			}
		case q.fleet.full():
		case reported || !tried || t.due(now):
			others = append(others, c)
		}
	}
	slices.SortStableFunc(others, func(a, b server.Candidate) int { return q.tried[a.ID].last.Compare(q.tried[b.ID].last) })
	room := maxScans
	for id := range q.scans {
		if !reported && q.fleet.tracked[id] == nil {
			room--
		}
	}
	count := min(len(others), max(0, room))
	for _, c := range others[:count] {
		t, tried := q.tried[c.ID]
		if !tried {
			t.first = now
		}
		t.last = now
		q.tried[c.ID] = t
	}
	due = append(due, others[:count]...)
	for _, c := range due {
		q.scans[c.ID] = true
	}
	return due, len(others) - count
}
