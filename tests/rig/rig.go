// Package rig holds the parts that tests and proofs build their measurements of: a real
// Longhorn volume of processes, and things in its way whose delay is known.
package rig

import (
	"fmt"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// DefaultTimeout is testkit.DefaultTimeout.
const DefaultTimeout = testkit.DefaultTimeout

// T is what the parts need of their caller: a test is one, and Scope is one for programs.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
	Failed() bool
}

// Tool returns the path of a third-party program, and ends a test or program without it.
func Tool(t T, name string) string {
	t.Helper()
	path, err := testkit.Find(name)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return path
}

// Eventually calls f until it returns nil, and ends a test or program at the deadline.
func Eventually(t T, deadline time.Duration, f func() error) {
	t.Helper()
	if err := testkit.Await(deadline, f); err != nil {
		t.Fatalf("%v", err)
	}
}

// Scope is a T for programs.
type Scope struct {
	log      func(format string, args ...any)
	cleanups []func()
	failed   error
}

// stop is what Fatalf panics with.
type stop struct{}

// Run calls f, then its cleanups, the last one first. It returns the first error that was reported.
func Run(log func(format string, args ...any), f func(t *Scope)) (err error) {
	t := &Scope{log: log}
	defer func() { err = t.failed }()
	defer func() {
		for len(t.cleanups) > 0 {
			last := t.cleanups[len(t.cleanups)-1]
			t.cleanups = t.cleanups[:len(t.cleanups)-1]
			t.guard(last)
		}
	}()
	t.guard(func() { f(t) })
	return nil
}

func (t *Scope) guard(f func()) {
	defer func() {
		if r := recover(); r != nil && r != (stop{}) {
			panic(r)
		}
	}()
	f()
}

// Helper does nothing; it makes a Scope a T.
func (t *Scope) Helper() {}

// Logf logs a message.
func (t *Scope) Logf(format string, args ...any) { t.log(format, args...) }

// Errorf reports an error; the run continues, but has failed.
func (t *Scope) Errorf(format string, args ...any) {
	err := fmt.Errorf(format, args...)
	t.log("%v", err)
	if t.failed == nil {
		t.failed = err
	}
}

// Fatalf reports an error and ends the run. Like a test's, it must be called by the goroutine that runs.
func (t *Scope) Fatalf(format string, args ...any) {
	t.Errorf(format, args...)
	panic(stop{})
}

// Check ends the run unless err is nil.
func (t *Scope) Check(err error) {
	if err != nil {
		t.Fatalf("%w", err)
	}
}

// Cleanup has f called at the end.
func (t *Scope) Cleanup(f func()) { t.cleanups = append(t.cleanups, f) }

// Failed reports whether there was an error.
func (t *Scope) Failed() bool { return t.failed != nil }
