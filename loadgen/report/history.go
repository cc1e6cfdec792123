package report

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// historyQuery has a value whenever a Prometheus scraped anything, whatever it scrapes.
const historyQuery = "count(up)"

// mostHoles is how many times without history are listed one by one.
const mostHoles = 5

// addHistory notes of which times of the soak Prometheus has nothing: it was started later, did not run, or has
// forgotten them. That no alert is shown then means nothing.
func (r *Report) addHistory(ctx context.Context, server string, step time.Duration) {
	found, err := queryRange(ctx, server, historyQuery, r.Began, r.Last, step)
	if err != nil {
		r.note("Prometheus' history: %v", err)
		return
	}
	var there []time.Time
	for _, s := range found {
		there = append(there, s.Times...)
	}
	holes := holes(there, r.Began, r.Last, step)
	if len(holes) == 0 {
		return
	}
	more := ""
	if n := len(holes) - mostHoles; n > 0 {
		holes, more = holes[:mostHoles], fmt.Sprintf(", and %d times more", n)
	}
	r.note("Prometheus has nothing (%s) %s%s: layers, alerts and restarts of that time are not known", historyQuery, strings.Join(holes, ", "), more)
}

// holes are the times between two others in which there is no moment, queried every step.
func holes(there []time.Time, from, to time.Time, step time.Duration) (words []string) {
	last := from.Add(-step)
	for _, at := range append(there, to.Add(step)) {
		// Two steps, for the first and the last are queried by whole seconds.
		if at.Sub(last) > 2*step+time.Second {
			words = append(words, fmt.Sprintf("from %s to %s", clock(last.Add(step)), clock(at.Add(-step))))
		}
		last = at
	}
	return words
}
