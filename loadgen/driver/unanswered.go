package driver

import (
	"container/list"
	"sync"
	"time"
)

// unanswered knows the transactions that are due and have no answer, the oldest first. They are
// entered in the order of their intended starts. One that the client gave up on stays until the
// server answers another or is seen to be gone: a timeout shorter than a stall does not end it.
type unanswered struct {
	mu      sync.Mutex
	open    list.List // of time.Time, intended starts
	givenUp time.Time // the oldest that was given up since the last answer; zero if none
}

// operation is a transaction that was handed out.
type operation struct {
	due  time.Time
	open *list.Element
}

// add enters a transaction that is due.
func (u *unanswered) add(due time.Time) operation {
	u.mu.Lock()
	defer u.mu.Unlock()
	return operation{due, u.open.PushBack(due)}
}

// drop takes out one that was not sent after all.
func (u *unanswered) drop(o operation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open.Remove(o.open)
}

// settle takes out one that the server answered, if only by an error or by being gone; what
// was given up before is settled with it.
func (u *unanswered) settle(o operation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open.Remove(o.open)
	u.givenUp = time.Time{}
}

// giveUp takes out one that the client stopped waiting for.
func (u *unanswered) giveUp(o operation) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.open.Remove(o.open)
	if u.givenUp.IsZero() || o.due.Before(u.givenUp) {
		u.givenUp = o.due
	}
}

// clear forgets what was given up: nothing more is sent.
func (u *unanswered) clear() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.givenUp = time.Time{}
}

// age is how long ago the oldest was due; 0 if there is none.
func (u *unanswered) age(now time.Time) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	oldest := u.givenUp
	if front := u.open.Front(); front != nil && (oldest.IsZero() || front.Value.(time.Time).Before(oldest)) {
		oldest = front.Value.(time.Time)
	}
	if oldest.IsZero() {
		return 0
	}
	return max(now.Sub(oldest), 0)
}
