package trace

import "sort"

// disorder is by how much an event may come after others that ended later: programs on several CPUs write to the
// ring, and some take their time from the kernel's own stamps.
const disorder = uint64(20e6)

// history keeps the latest events of one kind, nearly in the order of their ends.
type history struct {
	events []*Event // a ring once it is full
	next   int
	limit  int
	// forgotten is the end of the latest event that had to make room.
	forgotten uint64
}

// add keeps an event and returns the one that made room for it, if any.
func (h *history) add(e *Event) (gone *Event) {
	if len(h.events) < h.limit {
		h.events = append(h.events, e)
		return nil
	}
	gone = h.events[h.next]
	h.forgotten = max(h.forgotten, gone.End)
	h.events[h.next] = e
	h.next = (h.next + 1) % h.limit
	return gone
}

// at returns the i-th event, the oldest first.
func (h *history) at(i int) *Event { return h.events[(h.next+i)%len(h.events)] }

// each calls f with those that lie in part between two times, the oldest first.
func (h *history) each(from, to uint64, f func(*Event)) {
	n := len(h.events)
	first := sort.Search(n, func(i int) bool { return h.at(i).End+disorder > from })
	for i := first; i < n; i++ {
		e := h.at(i)
		if overlaps(e, from, to) {
			f(e)
		}
	}
}
