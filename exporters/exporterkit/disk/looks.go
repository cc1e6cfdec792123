package disk

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// ErrPending is the error of a look that began a moment ago.
var ErrPending = errors.New("not looked at yet")

// ErrHangs is the error of a look that does not return: the file system may be without its server.
var ErrHangs = errors.New("the file system does not answer")

const (
	// timeout is how long a look is pending before it counts as hanging.
	timeout = time.Second
	// maxUnderWay bounds the looks under way, each of which may hold a thread for ever.
	maxUnderWay = 16
	// maxRemembered bounds the paths that are remembered.
	maxRemembered = 20000
	// retryAfter and renewAfter are how soon a look that failed, or found something, is repeated.
	retryAfter = 10 * time.Second
	renewAfter = 5 * time.Minute
)

// looks takes looks at file systems in the background, one at a time for each key, and remembers
// what they found. The zero value is ready.
type looks struct {
	mu       sync.Mutex
	known    map[string]*look
	underWay int
	queue    []func()  // looks that wait for others to return
	forgot   time.Time // when room was made last
}

// look is what is known of one key.
type look struct {
	requested time.Time     // when the look under way was requested
	returned  chan struct{} // closed when it returns; nil if none is under way
	ended     time.Time     // of the last one that returned
	result    string
	err       error
}

// get returns what is known. It starts a look if nothing is known or the result is old.
func (l *looks) get(key string, call func() (string, error)) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.known[key]
	if k == nil {
		if l.known == nil {
			l.known = map[string]*look{}
		}
		if len(l.known) >= maxRemembered && time.Since(l.forgot) >= retryAfter {
			l.forget()
		}
		if len(l.known) >= maxRemembered {
			return "", fmt.Errorf("%s: %w", label.Value(key), ErrHangs)
		}
		k = &look{err: ErrPending}
		l.known[key] = k
	}
	age := retryAfter
	if k.err == nil {
		age = renewAfter
	}
	if k.returned == nil && time.Since(k.ended) >= age {
		k.requested, k.returned = time.Now(), make(chan struct{})
		l.queue = append(l.queue, func() { l.take(k, call) })
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

// wait is get, but waits for a first look.
func (l *looks) wait(key string, call func() (string, error)) (string, error) {
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

// work takes looks until none is left.
func (l *looks) work() {
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

// take takes one look.
func (l *looks) take(k *look, call func() (string, error)) {
	result, err := call()
	l.mu.Lock()
	defer l.mu.Unlock()
	k.result, k.err, k.ended = result, err, time.Now()
	close(k.returned)
	k.returned = nil
}

// forget makes room: a path that is still in use is looked up again.
func (l *looks) forget() {
	l.forgot = time.Now()
	for key, k := range l.known {
		if k.returned == nil {
			delete(l.known, key)
		}
	}
}
