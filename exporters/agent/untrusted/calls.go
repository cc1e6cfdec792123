package untrusted

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

// Unanswered reports whether a call timed out, or was not made because others hang: the next one may be answered.
func Unanswered(err error) bool { return errors.Is(err, ErrUnanswered) || errors.Is(err, ErrTooMany) }

const (
	// DefaultTimeout is how long a call on another process's files or memory may take. Before it, it may wait half as
	// long for its owner's others.
	DefaultTimeout = 2 * time.Second
	// DefaultHanging is how many calls may hang at once. Each holds a thread of the agent.
	DefaultHanging = 128
)

// The shares of these for the calls of one user in one cgroup, of one cgroup and of one user: processes that hang on
// purpose must not use up what the others need. A process of another container may have any user, that of a database,
// too, but is in no cgroup but its own. A process that may make cgroups of its own cannot choose its user.
const (
	ownerShare = 8
	groupShare = 4
	userShare  = 2
)

// Owner is whose process a call reads. The zero Owner is the agent itself.
type Owner struct {
	// User is the process's user. Where that does not identify an owner, as for root's engines and replicas, it is the
	// owner by cgroup (pod.Owner).
	User string
	// Group is the process's cgroup, as the kernel reports it, or empty if it is in none of its own.
	Group string
}

// Calls bounds calls that may hang in the kernel, such as any on a file system whose server is gone. A call that hangs
// cannot be ended: its goroutine and thread stay until the kernel answers. So of each key there is one call at a time,
// and once the limit of hanging calls is reached, no more are made. Callers bound their concurrent calls themselves:
// these are not known to hang before the timeout is over.
type Calls struct {
	timeout time.Duration
	hanging int

	mu    sync.Mutex
	under map[string]*call
	// changed is closed when one of these returns, or is known to hang.
	changed chan struct{}
	late    uint64
	// entered counts what was begun by Enter.
	entered uint64
}

// call is one that has not returned.
type call struct {
	owner Owner
	hangs bool
}

// NewCalls returns Calls with a timeout for each call and a limit for those that hang.
func NewCalls(timeout time.Duration, hanging int) *Calls {
	return &Calls{timeout: timeout, hanging: hanging, under: map[string]*call{}, changed: make(chan struct{})}
}

// Do makes a call within the timeout. The call must leave its result in a place of its own that is read with a lock,
// or only if Do returns no error of this package: it may go on after Do has returned.
func (c *Calls) Do(key string, f func() error) error { return c.do(Owner{}, key, f) }

// DoFor makes a call on behalf of an owner that is no process, such as the file system that is read. Each has an
// eighth of the calls that may hang.
func (c *Calls) DoFor(owner, key string, f func() error) error {
	return c.do(Owner{User: owner}, key, f)
}

// do makes a call on behalf of an owner, which has a share of the calls that may hang. The agent's own calls have the
// bound of all others together, and do not wait for those.
func (c *Calls) do(owner Owner, key string, f func() error) error {
	mine, err := c.begin(owner, key)
	if err != nil {
		return err
	}
	answer := make(chan error, 1)
	go func() {
		err := guarded(key, f)
		c.returned(key)
		answer <- err // when the next call of this key may be made
	}()
	deadline := time.NewTimer(c.timeout)
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
		c.change()
	}
	return fmt.Errorf("%s: %w (%s)", key, ErrUnanswered, c.timeout)
}

// begin notes a call as under way, once its owner has room for it; it waits at most half the timeout. An owner with
// many concurrent calls has no more that may turn out to hang than its share.
func (c *Calls) begin(owner Owner, key string) (*call, error) {
	deadline := time.NewTimer(c.timeout / 2)
	defer deadline.Stop()
	for {
		c.mu.Lock()
		switch {
		case c.under[key] != nil:
			c.mu.Unlock()
			return nil, fmt.Errorf("%s: %w: an earlier call still hangs", key, ErrUnanswered)
		case c.full(owner, false):
			c.mu.Unlock()
			return nil, fmt.Errorf("%s: %w", key, ErrTooMany)
		case !c.full(owner, true):
			mine := &call{owner: owner}
			c.under[key] = mine
			c.mu.Unlock()
			return mine, nil
		}
		changed := c.changed
		c.mu.Unlock()
		select {
		case <-changed:
		case <-deadline.C:
			return nil, fmt.Errorf("%s: %w", key, ErrTooMany)
		}
	}
}

// Enter begins what is no call by itself but is bounded as calls are, such as a scan that makes several of them, once
// its owner has room for it, for which it waits half the timeout. What it returns ends it.
func (c *Calls) Enter(owner Owner, what string) (over func(), err error) {
	c.mu.Lock()
	c.entered++
	key := fmt.Sprintf("%s %d", what, c.entered)
	c.mu.Unlock()
	if _, err := c.begin(owner, key); err != nil {
		return nil, fmt.Errorf("%s: %w", what, ErrTooMany) // the key is used by no other call
	}
	return func() { c.returned(key) }, nil
}

// returned notes that a call is not under way any more.
func (c *Calls) returned(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.under, key)
	c.change()
}

// change wakes all waiters: a call has returned, or hangs.
func (c *Calls) change() {
	close(c.changed)
	c.changed = make(chan struct{})
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

// full reports whether an owner has used up its calls: it counts calls that hang or, if all is set, also those under
// way that may yet hang. Several owners that are slow together, and do not hang, can therefore delay others, whose
// calls are not made this time. Otherwise more calls than allowed could turn out to hang.
func (c *Calls) full(owner Owner, all bool) bool {
	agent := owner == Owner{}
	var own, group, user, sum int
	for _, u := range c.under {
		if !all && !u.hangs || (u.owner == Owner{}) != agent {
			continue
		}
		sum++
		if u.owner == owner {
			own++
		}
		if u.owner.Group == owner.Group {
			group++
		}
		if u.owner.User == owner.User {
			user++
		}
	}
	if agent {
		return sum >= c.hanging && !all
	}
	beyond := func(n, share int) bool { return n >= max(1, c.hanging/share) }
	return sum >= c.hanging || beyond(own, ownerShare) || owner.Group != "" && beyond(group, groupShare) || beyond(user, userShare)
}

// Call makes a call that has a result on behalf of an owner.
func Call[T any](c *Calls, owner Owner, key string, f func() (T, error)) (T, error) {
	var result, none T
	err := c.do(owner, key, func() (err error) {
		// A late result is discarded: each call of Call has its own.
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
	for _, u := range c.under {
		if u.hangs {
			n++
		}
	}
	return n
}

// Late returns how many calls were not answered in time.
func (c *Calls) Late() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.late
}
