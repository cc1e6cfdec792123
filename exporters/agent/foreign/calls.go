package foreign

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrUnanswered is the error of a call that has not returned in time.
var ErrUnanswered = errors.New("no answer in time")

// ErrTooMany is the error of a call that was not made, because too many others hang.
var ErrTooMany = errors.New("too many calls hang already")

// Unanswered tells whether a call was not answered in time, or not made because others hang: the next one may be answered.
func Unanswered(err error) bool { return errors.Is(err, ErrUnanswered) || errors.Is(err, ErrTooMany) }

const (
	// DefaultPatience is how long a call on another process's files or memory may take.
	DefaultPatience = 2 * time.Second
	// DefaultHanging is how many calls may hang at once. Each holds a thread of the agent.
	DefaultHanging = 128
	// ownerShare is the part of these that one owner's calls may take: a user whose processes
	// hang on purpose must not use up what the others need.
	ownerShare = 8
)

// Calls bounds calls that may hang in the kernel, such as any on a file system whose server is
// gone. A call that hangs cannot be ended: its goroutine and thread stay until the kernel
// answers. So of each key there is one call at a time, and once as many hang as may, no more are
// made. Whoever makes calls side by side bounds how many: those are not known to hang before
// the patience is over.
type Calls struct {
	patience time.Duration
	hanging  int

	mu    sync.Mutex
	under map[string]*call
	// hung counts the calls that hang, by owner.
	hung map[string]int
	late uint64
}

// call is one that has not returned.
type call struct{ hangs bool }

// NewCalls returns Calls with a patience for each call and a limit for those that hang.
func NewCalls(patience time.Duration, hanging int) *Calls {
	return &Calls{patience: patience, hanging: hanging, under: map[string]*call{}, hung: map[string]int{}}
}

// Do makes a call within the patience. The call must leave its result in a place of its own
// that is read only if Do returns no error of this package: it may go on after Do has returned.
func (c *Calls) Do(key string, f func() error) error { return c.DoFor("", key, f) }

// DoFor makes a call on behalf of an owner, such as the user whose process is looked at. Each
// owner has an eighth of the calls that may hang; "" is the agent itself, whose own calls are
// bounded as all others together are, and do not wait for those.
func (c *Calls) DoFor(owner, key string, f func() error) error {
	mine := &call{}
	c.mu.Lock()
	switch {
	case c.under[key] != nil:
		c.mu.Unlock()
		return fmt.Errorf("%s: %w: an earlier call still hangs", key, ErrUnanswered)
	case c.full(owner):
		c.mu.Unlock()
		return fmt.Errorf("%s: %w", key, ErrTooMany)
	}
	c.under[key] = mine
	c.mu.Unlock()
	answer := make(chan error, 1)
	go func() {
		err := guarded(key, f)
		c.mu.Lock()
		delete(c.under, key)
		if mine.hangs {
			c.release(owner)
		}
		c.mu.Unlock()
		answer <- err // when the next call of this key may be made
	}()
	deadline := time.NewTimer(c.patience)
	defer deadline.Stop()
	select {
	case err := <-answer:
		return err
	case <-deadline.C:
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late++
	if c.under[key] == mine { // it has not just returned
		mine.hangs = true
		c.hung[owner]++
	}
	return fmt.Errorf("%s: %w (%s)", key, ErrUnanswered, c.patience)
}

// guarded makes a call whose panic is an error.
func guarded(key string, f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("%s: panic: %v", key, r)
		}
	}()
	return f()
}

// full tells whether an owner may have no more calls.
func (c *Calls) full(owner string) bool {
	if owner == "" {
		return c.hung[owner] >= c.hanging
	}
	others := 0
	for o, n := range c.hung {
		if o != "" {
			others += n
		}
	}
	return others >= c.hanging || c.hung[owner] >= max(1, c.hanging/ownerShare)
}

func (c *Calls) release(owner string) {
	if c.hung[owner]--; c.hung[owner] == 0 {
		delete(c.hung, owner)
	}
}

// Ask makes a call that has a result.
func Ask[T any](c *Calls, key string, f func() (T, error)) (T, error) {
	return AskFor(c, "", key, f)
}

// AskFor makes a call that has a result on behalf of an owner, see DoFor.
func AskFor[T any](c *Calls, owner, key string, f func() (T, error)) (T, error) {
	var result, none T
	err := c.DoFor(owner, key, func() (err error) {
		// A late result is written where nobody reads it any more: each Ask has its own.
		result, err = f()
		return err
	})
	if Unanswered(err) {
		return none, err
	}
	return result, err
}

// Hanging returns how many calls have not been answered in time, and still are not.
func (c *Calls) Hanging() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, hung := range c.hung {
		n += hung
	}
	return n
}

// Late returns how many calls were not answered in time.
func (c *Calls) Late() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}
