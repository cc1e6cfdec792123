package trace

import (
	"cmp"
	"slices"
)

// ranking keeps the slowest of a kind, the slowest first.
type ranking[T any] struct {
	limit int
	span  func(T) (start, end uint64)
	kept  []T
	// size is how large one is, and maxSize bounds all of them together, but for the slowest; no bound if size is nil.
	size    func(T) int
	maxSize int
	// overflowed is set if some had to go for their size.
	overflowed bool
}

func newRanking[T any](limit int, span func(T) (start, end uint64)) ranking[T] {
	return ranking[T]{limit: limit, span: span}
}

// admits reports whether one of this duration would be among them.
func (r *ranking[T]) admits(duration uint64) bool {
	if r.limit == 0 || len(r.kept) == 0 || len(r.kept) < r.limit && !r.overflowed {
		return r.limit > 0
	}
	start, end := r.span(r.kept[len(r.kept)-1])
	return duration > end-start
}

// add keeps one if it is slow enough; the fastest makes room.
func (r *ranking[T]) add(one T) {
	start, end := r.span(one)
	if !r.admits(end - start) {
		return
	}
	at, _ := slices.BinarySearchFunc(r.kept, one, func(a, b T) int {
		aStart, aEnd := r.span(a)
		bStart, bEnd := r.span(b)
		return cmp.Or(cmp.Compare(bEnd-bStart, aEnd-aStart), cmp.Compare(aStart, bStart))
	})
	r.kept = slices.Insert(r.kept, at, one)
	if len(r.kept) > r.limit {
		r.kept = slices.Delete(r.kept, r.limit, len(r.kept))
	}
	r.fit()
}

// fit lets the fastest go until the others are not too large.
func (r *ranking[T]) fit() {
	if r.size == nil {
		return
	}
	sum := 0
	for i, one := range r.kept {
		if sum += r.size(one); sum > r.maxSize && i > 0 {
			r.kept = slices.Delete(r.kept, i, len(r.kept))
			r.overflowed = true
			return
		}
	}
}

// expire forgets those that ended before a time.
func (r *ranking[T]) expire(before uint64) {
	n := len(r.kept)
	r.kept = slices.DeleteFunc(r.kept, func(one T) bool {
		_, end := r.span(one)
		return end < before
	})
	if len(r.kept) < n {
		r.overflowed = false
	}
}
