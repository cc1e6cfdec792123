package untrusted

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// hang returns a call that blocks until release is called.
func hang() (call func() error, release func()) {
	end := make(chan struct{})
	var once sync.Once
	return func() error { <-end; return nil }, func() { once.Do(func() { close(end) }) }
}

// A call that hangs is given up, is not made again, holds up no other, and is forgotten when it
// returns.
func TestCallsHang(t *testing.T) {
	c := NewCalls(10*time.Millisecond, 8)
	call, release := hang()
	defer release()
	for range 3 {
		if err := c.Do("a", call); !errors.Is(err, ErrUnanswered) || !strings.Contains(err.Error(), "a: ") {
			t.Fatalf("error %v", err)
		}
	}
	if c.Hanging() != 1 || c.Late() != 1 {
		t.Errorf("%d hanging, %d late, want one call made", c.Hanging(), c.Late())
	}
	longTimeout := NewCalls(time.Minute, 8)
	if n, err := Call(longTimeout, Owner{}, "b", func() (int, error) { return 7, nil }); n != 7 || err != nil {
		t.Errorf("another call gave %d, %v", n, err)
	}
	release()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := c.Hanging(); n != 0 {
			return fmt.Errorf("%d calls hang", n)
		}
		return nil
	})
}

// A late result is discarded, and a panic is an error.
func TestCallsResults(t *testing.T) {
	c := NewCalls(10*time.Millisecond, 8)
	call, release := hang()
	defer release()
	text, err := Call(c, Owner{}, "late", func() (string, error) { call(); return "late", nil })
	if text != "" || !errors.Is(err, ErrUnanswered) {
		t.Errorf("%q, %v", text, err)
	}
	longTimeout := NewCalls(time.Minute, 8)
	if err := longTimeout.Do("p", func() error { panic("no") }); err == nil || !strings.Contains(err.Error(), "panic: no") {
		t.Errorf("a panic gave %v", err)
	}
	if n, err := Call(longTimeout, Owner{}, "e", func() (int, error) { return 3, errors.New("partly") }); n != 3 || err == nil {
		t.Errorf("a result beside an error: %d, %v", n, err)
	}
}

// One call after the other with one key are all made: the first has ended when Do returns.
func TestCallsOneAfterTheOther(t *testing.T) {
	c := NewCalls(time.Minute, 8)
	for i := range 10000 {
		if err := c.Do("a", func() error { return nil }); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
}

// As many calls hang as may, one owner's do not use up the others' share, and none of them that
// of the agent's own calls.
func TestCallsBounded(t *testing.T) {
	const hanging = 3 * ownerShare
	c := NewCalls(time.Millisecond, hanging)
	call, release := hang()
	defer release()
	made := func(owner string) (n int) {
		for i := range 2 * hanging {
			if err := c.DoFor(owner, fmt.Sprintf("%s %d", owner, i), call); errors.Is(err, ErrUnanswered) {
				n++
			} else if !errors.Is(err, ErrTooMany) {
				t.Fatal(err)
			}
		}
		return n
	}
	if n := made("one"); n != hanging/ownerShare {
		t.Errorf("one owner has %d calls, want %d", n, hanging/ownerShare)
	}
	sum := hanging / ownerShare
	for i := range 2 * ownerShare {
		sum += made(fmt.Sprint("owner ", i))
	}
	if sum != hanging {
		t.Errorf("all owners have %d calls, want %d", sum, hanging)
	}
	if n := made(""); n != hanging {
		t.Errorf("the agent has %d calls of its own, want %d", n, hanging)
	}
}

// A user that chooses the users or the cgroups of his processes, or neither, uses up his own share only, also with all
// calls at once.
func TestCallsShares(t *testing.T) {
	const hanging = 3 * ownerShare
	database := Owner{"999", "database"}
	for _, c := range []struct {
		name   string
		owner  func(i int) Owner
		want   int
		victim Owner
	}{
		{"a database's user in another cgroup", func(int) Owner { return Owner{"999", "neighbour"} }, hanging / ownerShare, database},
		{"many users in one cgroup", func(i int) Owner { return Owner{fmt.Sprint(i), "neighbour"} }, hanging / groupShare, database},
		{"one user in many cgroups", func(i int) Owner { return Owner{"1000", fmt.Sprint(i)} }, hanging / userShare, database},
		{"a user without a cgroup", func(int) Owner { return Owner{User: "1000"} }, hanging / ownerShare, Owner{User: "999"}},
		{"who may choose both", func(i int) Owner { return Owner{fmt.Sprint(i), fmt.Sprint(i)} }, hanging, Owner{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			calls := NewCalls(time.Millisecond, hanging)
			call, release := hang()
			defer release()
			var made atomic.Int32
			var wait sync.WaitGroup
			for i := range 2 * hanging {
				wait.Go(func() {
					if err := calls.do(c.owner(i), fmt.Sprint(i), call); errors.Is(err, ErrUnanswered) {
						made.Add(1)
					} else if !errors.Is(err, ErrTooMany) {
						t.Error(err)
					}
				})
			}
			wait.Wait()
			if n := int(made.Load()); n != c.want || calls.Hanging() != n {
				t.Errorf("%d calls were made, %d hang, want %d", n, calls.Hanging(), c.want)
			}
			if err := calls.do(c.victim, "victim", func() error { return nil }); errors.Is(err, ErrTooMany) {
				t.Errorf("the victim's call: %v", err)
			}
		})
	}
}

// A call beyond a share waits for those under way, and is made if they return.
func TestCallsWaitForShare(t *testing.T) {
	c := NewCalls(time.Minute, ownerShare)
	call, release := hang()
	defer release()
	answers := make(chan error, 2)
	owner := Owner{User: "1000"}
	go func() { answers <- c.do(owner, "first", call) }()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.under["first"] == nil {
			return errors.New("the first call is not made")
		}
		return nil
	})
	var released, second atomic.Bool
	go func() {
		answers <- c.do(owner, "second", func() error {
			if !released.Load() {
				t.Error("a call is made beyond the share")
			}
			second.Store(true)
			return nil
		})
	}()
	if err := c.do(Owner{User: "999"}, "other", func() error { return nil }); err != nil {
		t.Errorf("another one's call: %v", err)
	}
	released.Store(true)
	release()
	for range 2 {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	if !second.Load() {
		t.Error("the call that waited was not made")
	}
}

// Many goroutines with few keys, some of whose calls are late: never two of one key at a time.
// Run with -race this also shows that results are not shared.
func TestCallsRace(t *testing.T) {
	c := NewCalls(time.Millisecond, 1<<20)
	var under [5]atomic.Int32
	var wait sync.WaitGroup
	for g := range 20 {
		wait.Go(func() {
			for i := range 200 {
				key := (g + i) % len(under)
				n, err := Call(c, Owner{}, fmt.Sprint(key), func() (int, error) {
					if under[key].Add(1) != 1 {
						t.Error("two calls of one key")
					}
					defer under[key].Add(-1)
					if i%50 == 0 {
						time.Sleep(2 * time.Millisecond) // about as long as the timeout: either may be first
					}
					return i, nil
				})
				if err == nil && n != i {
					t.Errorf("the result is %d, want %d", n, i)
				}
			}
		})
	}
	wait.Wait()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := c.Hanging(); n != 0 {
			return fmt.Errorf("%d calls hang after all have returned", n)
		}
		return nil
	})
}
