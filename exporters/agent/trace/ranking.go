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
}

func newRanking[T any](limit int, span func(T) (start, end uint64)) ranking[T] {
	return ranking[T]{limit: limit, span: span}
}

// admits tells whether one of this duration would be among them.
func (r *ranking[T]) admits(duration uint64) bool {
	if r.limit == 0 || len(r.kept) < r.limit {
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
}

// expire forgets those that ended before a time.
func (r *ranking[T]) expire(before uint64) {
	r.kept = slices.DeleteFunc(r.kept, func(one T) bool {
		_, end := r.span(one)
		return end < before
	})
}
