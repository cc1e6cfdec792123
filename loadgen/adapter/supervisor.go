// Package adapter keeps a foreign load tool running and reports its load in loadgen's metrics.
// One sub-package per tool builds its command line and reads its output.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// firstBackoff and lastBackoff bound the wait between two tries; it doubles each time.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 15 * time.Second
	// healthyAfter is how long a tool must have worked for the back-off to start afresh.
	healthyAfter = 10 * time.Second
	// LongTry is how long a try of Retry lasts that has got somewhere. One that only waits for a server to connect or to
	// answer ends before, by time-outs of connectTimeout and the like.
	LongTry = time.Minute
	// downTick is how often the transactions that fall due during an outage are counted.
	downTick = 250 * time.Millisecond
)

// Supervisor runs one tool for as long as its context lives.
type Supervisor struct {
	Load *metrics.Load
	// Beside are further loads the same tool makes; they share its phase.
	Beside []*metrics.Load
	Log    *slog.Logger
	// Rate is how many transactions per second fall due, to count those of an outage; 0 for a
	// closed loop, in which nothing falls due while the tool is down.
	Rate float64
	// Warmup is how long after its first transaction a (re)started tool counts as warming up.
	Warmup time.Duration
	// GiveUp is for how long Retry, and Run until the tool's first transaction, try; 0 for ever.
	GiveUp time.Duration

	mu        sync.Mutex
	upSince   time.Time // zero while the tool does no work
	downSince time.Time // zero while the tool is up or was never started
	why       metrics.SkipReason
	steady    bool    // it was, once
	owed      float64 // part of a transaction fallen due while down, not yet counted
	warm      *time.Timer
}

// Ended is how one run of a tool ended.
type Ended struct {
	// Reason goes into the restart counter.
	Reason metrics.RestartReason
	// Err is the error for the operator.
	Err error
	// Refused is set if the tool did nothing because its arguments cannot work, such as an unknown word. No retry mends
	// that.
	Refused bool
}

// End returns how a run of a tool ended, from its process's error and its last output. refused is whether, by the
// tool's words, no retry mends that; a program that was killed, or a server that is down, refuses nothing.
func End(tool string, err error, lastWords string, serverDown, refused bool) Ended {
	e := Ended{Reason: metrics.Exited, Err: Describe(tool, err, lastWords), Refused: refused && !serverDown && KilledBy(err) == 0}
	switch {
	case NotStarted(err):
		e.Reason = metrics.StartFailed
		e.Refused = errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ENOEXEC)
	case serverDown:
		e.Reason = metrics.ServerDown
	case KilledBy(err) != 0:
		e.Reason = metrics.Killed
	}
	return e
}

// Run calls once again and again until ctx ends, with growing pauses between. once runs the tool to its end; it calls
// Up when the tool's first transaction is seen. It fails when it gives up, or if the tool refuses its arguments.
func (s *Supervisor) Run(ctx context.Context, once func(context.Context) Ended) error {
	var counting sync.WaitGroup
	stop := make(chan struct{})
	counting.Go(func() { s.countOutages(stop) })
	defer counting.Wait()
	defer close(stop)
	backoff, began, ever := firstBackoff, time.Now(), false
	timeout := s.GiveUp
	for {
		ended := once(ctx)
		worked := s.down(ended.Reason)
		if ctx.Err() != nil {
			return nil
		}
		s.Load.Ended(ended.Reason, words(ended.Err))
		ever = ever || worked > 0
		if !ever && ended.Refused {
			return fmt.Errorf("the load tool refuses its options, and is not tried again: %w", ended.Err)
		}
		// One that works and never gets through its warm-up has no result either.
		if ever && timeout == s.GiveUp {
			began, timeout = time.Now(), s.GiveUp+s.Warmup
		}
		if s.GiveUp > 0 && !s.wasSteady() && time.Since(began) >= timeout {
			return fmt.Errorf("the load was not steady once in %v: %w", timeout, ended.Err)
		}
		if worked >= healthyAfter {
			backoff = firstBackoff
		}
		s.Log.Warn("load tool ended; it is started again", "reason", string(ended.Reason), "err", ended.Err, "pause", backoff)
		if !Sleep(ctx, backoff) {
			return nil
		}
		backoff = min(2*backoff, lastBackoff)
		s.Load.Restarted(ended.Reason)
	}
}

func words(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// Up notes that the tool does transactions now. It may be called for each of them.
func (s *Supervisor) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.upSince.IsZero() {
		return
	}
	s.settle(time.Now())
	s.upSince, s.downSince = time.Now(), time.Time{}
	if s.Warmup <= 0 {
		s.steady = true
		s.phase(metrics.Steady)
		return
	}
	s.phase(metrics.Warmup)
	began := s.upSince
	s.warm = time.AfterFunc(s.Warmup, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.upSince.Equal(began) {
			s.steady = true
			s.phase(metrics.Steady)
		}
	})
}

func (s *Supervisor) wasSteady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.steady
}

func (s *Supervisor) phase(p metrics.Phase) {
	s.Load.SetPhase(p)
	for _, l := range s.Beside {
		l.SetPhase(p)
	}
}

// down marks the tool as not working and returns for how long it had worked. What falls due until it works again was
// not sent, either because the server is down or for a reason of the tool's own.
func (s *Supervisor) down(reason metrics.RestartReason) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warm != nil {
		s.warm.Stop()
	}
	phase := metrics.Stopped
	s.settle(time.Now()) // by the reason before
	if s.why = metrics.Tool; reason == metrics.ServerDown {
		s.why, phase = metrics.Down, metrics.Unserved
	}
	s.phase(phase)
	var worked time.Duration
	if !s.upSince.IsZero() {
		worked = time.Since(s.upSince)
	}
	s.upSince = time.Time{}
	if s.downSince.IsZero() {
		s.downSince = time.Now()
	}
	return worked
}

func (s *Supervisor) countOutages(stop <-chan struct{}) {
	tick := time.NewTicker(downTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.settle(time.Now())
			s.mu.Unlock()
		case <-stop:
			return
		}
	}
}

// settle counts the transactions that fell due since the tool went down.
func (s *Supervisor) settle(now time.Time) {
	if s.downSince.IsZero() {
		return
	}
	s.owed += s.Rate * now.Sub(s.downSince).Seconds()
	s.downSince = now
	whole := uint64(s.owed)
	s.owed -= float64(whole)
	s.Load.Offered(whole)
	for range whole {
		s.Load.Skipped(s.why, 0)
	}
}

// Sleep waits for d. It returns false if ctx has ended, also before an empty wait.
func Sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Retry calls f with growing pauses until it succeeds, logging and counting each failure by its kind, or until ctx
// ends. From when no server takes a connection, or after RefusedFor of nothing but failures, that is the phase until f
// succeeds or lasts for LongTry: also while f waits for a server whose address takes no packets. An error wrapped by
// Final is not retried.
func (s *Supervisor) Retry(ctx context.Context, what string, f func(context.Context) error) error {
	backoff, began, working := firstBackoff, time.Now(), s.Load.Phase()
	defer func() { s.phase(working) }()
	var failing time.Time
	for {
		tried := time.Now()
		err := s.try(ctx, working, f)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		var final *finalError
		if errors.As(err, &final) {
			return err
		}
		if s.gaveUp(began) {
			return fmt.Errorf("%s failed for %s: %w", what, s.GiveUp, err)
		}
		kind := Kind(ctx, err)
		s.Load.Error(kind)
		s.Log.Warn(what+" failed; it is tried again", "kind", string(kind), "err", err, "pause", backoff)
		if failing.IsZero() || time.Since(tried) >= LongTry {
			failing = time.Now()
		}
		if Unserved(kind) || time.Since(failing) >= RefusedFor {
			s.phase(metrics.Unserved)
		}
		if !Sleep(ctx, backoff) {
			return ctx.Err()
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

// try calls f, and sets the phase to working if that lasts for LongTry.
func (s *Supervisor) try(ctx context.Context, working metrics.Phase, f func(context.Context) error) error {
	var watching sync.WaitGroup
	defer watching.Wait()
	over := make(chan struct{})
	defer close(over)
	watching.Go(func() {
		timer := time.NewTimer(LongTry)
		defer timer.Stop()
		select {
		case <-timer.C:
			s.phase(working)
		case <-over:
		}
	})
	return f(ctx)
}

func (s *Supervisor) gaveUp(began time.Time) bool {
	return s.GiveUp > 0 && time.Since(began) >= s.GiveUp
}

// Final marks an error that no retry can mend, such as a missing program.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }
