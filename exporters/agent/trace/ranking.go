package trace

import (
	"cmp"
	"slices"
)

// ranking keeps the slowest chains, the slowest first.
type ranking struct {
	limit  int
	chains []*Chain
}

// admits tells whether a chain of this duration would be among them.
func (r *ranking) admits(duration uint64) bool {
	return r.limit > 0 && (len(r.chains) < r.limit || duration > r.chains[len(r.chains)-1].Duration())
}

// add keeps a chain; the fastest one makes room.
func (r *ranking) add(c *Chain) {
	at, _ := slices.BinarySearchFunc(r.chains, c, func(a, b *Chain) int {
		return cmp.Or(cmp.Compare(b.Duration(), a.Duration()), cmp.Compare(a.Root.Start, b.Root.Start))
	})
	r.chains = slices.Insert(r.chains, at, c)
	if len(r.chains) > r.limit {
		r.chains = r.chains[:r.limit]
	}
}

// expire forgets those that ended before a time.
func (r *ranking) expire(before uint64) {
	r.chains = slices.DeleteFunc(r.chains, func(c *Chain) bool { return c.Root.End < before })
}
