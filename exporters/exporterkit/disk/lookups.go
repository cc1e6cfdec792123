package disk

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// ErrPending is the error of a lookup that began a moment ago.
var ErrPending = errors.New("not looked up yet")

// ErrHangs is the error of a lookup that does not return: the file system may be without its server.
var ErrHangs = errors.New("the file system does not answer")

const (
	// timeout is how long a lookup is pending before it counts as hanging.
	timeout = time.Second
	// maxUnderWay bounds the lookups under way, each of which may hold a thread for ever.
	maxUnderWay = 16
	// maxRemembered bounds the paths that are remembered.
	maxRemembered = 20000
	// retryAfter and renewAfter are how soon a lookup that failed, or found something, is repeated.
	retryAfter = 10 * time.Second
	renewAfter = 5 * time.Minute
)

// lookups makes lookups on file systems in the background, one at a time for each key, and remembers
// what they found. The zero value is ready.
type lookups struct {
	mu       sync.Mutex
	known    map[string]*lookup
	underWay int
	queue    []func()  // lookups that wait for others to return
	forgot   time.Time // when room was made last
}

// lookup is what is known of one key.
type lookup struct {
	requested time.Time     // when the lookup under way was requested
	returned  chan struct{} // closed when it returns; nil if none is under way
	ended     time.Time     // of the last one that returned
	result    string
	err       error
}

// get returns what is known. It starts a lookup if nothing is known or the result is old.
func (l *lookups) get(key string, call func() (string, error)) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[key]
	if k == nil {
		if l.known == nil {
			l.known = map[string]*lookup{}
		}
		if len(l.known) >= maxRemembered && time.Since(l.forgot) >= retryAfter {
			l.forget()
		}
		if len(l.known) >= maxRemembered {
			return "", fmt.Errorf("%s: %w", label.Value(key), ErrHangs)
		}
		k = &lookup{err: ErrPending}
		l.known[key] = k
	}
	age := retryAfter
	if k.err == nil {
		age = renewAfter
	}
	if k.returned == nil && time.Since(k.ended) >= age {
		k.requested, k.returned = time.Now(), make(chan struct{})
		l.queue = append(l.queue, func() { l.do(k, call) })
		if l.underWay < maxUnderWay {
			l.underWay++
			go l.work()
		}
	}
	if k.err != nil && k.returned != nil && time.Since(k.requested) >= timeout {
		return "", fmt.Errorf("%s: %w", label.Value(key), ErrHangs)
	}
	return k.result, k.err
}

// wait is get, but waits for a first lookup.
func (l *lookups) wait(key string, call func() (string, error)) (string, error) {
	result, err := l.get(key, call)
	if !errors.Is(err, ErrPending) {
		return result, err
	}
	l.mu.Lock()
	var returned chan struct{}
	if k := l.known[key]; k != nil {
		returned = k.returned
	}
	l.mu.Unlock()
	if returned != nil {
		select {
		case <-returned:
		case <-time.After(timeout):
		}
	}
	return l.get(key, call)
}

// work makes lookups until none is left.
func (l *lookups) work() {
	for {
		l.mu.Lock()
		if len(l.queue) == 0 {
			l.underWay--
			l.mu.Unlock()
			return
		}
		next := l.queue[0]
		l.queue = l.queue[1:]
		l.mu.Unlock()
		next()
	}
}

// do makes one lookup.
func (l *lookups) do(k *lookup, call func() (string, error)) {
	result, err := call()
	l.mu.Lock()
	defer l.mu.Unlock()
	k.result, k.err, k.ended = result, err, time.Now()
	close(k.returned)
	k.returned = nil
}

// forget makes room: a path that is still in use is looked up again.
func (l *lookups) forget() {
	l.forgot = time.Now()
	for key, k := range l.known {
		if k.returned == nil {
			delete(l.known, key)
		}
	}
}
