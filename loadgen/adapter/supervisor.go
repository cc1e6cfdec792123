// Package adapter keeps a foreign load tool running and tells its story in loadgen's metrics.
// One sub-package per tool builds its command line and reads its output.
package adapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

const (
	// firstBackoff and lastBackoff bound the wait between two tries; it doubles each time.
	firstBackoff = 250 * time.Millisecond
	lastBackoff  = 15 * time.Second
	// healthyAfter is how long a tool must have worked for the back-off to start afresh.
	healthyAfter = 10 * time.Second
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
	owed      float64   // part of a transaction fallen due while down, not yet counted
	warm      *time.Timer
}

// Ended says how one run of a tool ended.
type Ended struct {
	// Reason goes into the restart counter.
	Reason metrics.RestartReason
	// Err is what to tell the operator.
	Err error
}

// End says how a run of a tool ended, from its process's error and the last thing it said.
func End(tool string, err error, lastWords string, serverDown bool) Ended {
	e := Ended{Reason: metrics.Exited, Err: Describe(tool, err, lastWords)}
	switch {
	case NotStarted(err):
		e.Reason = metrics.StartFailed
	case serverDown:
		e.Reason = metrics.ServerDown
	case KilledBy(err) != 0:
		e.Reason = metrics.Killed
	}
	return e
}

// Run calls once again and again until ctx ends, with growing pauses between. once runs the
// tool to its end; it calls Up when the tool's first transaction is seen. The error is of having
// given up.
func (s *Supervisor) Run(ctx context.Context, once func(context.Context) Ended) error {
	var counting sync.WaitGroup
	stop := make(chan struct{})
	counting.Go(func() { s.countOutages(stop) })
	defer counting.Wait()
	defer close(stop)
	backoff, began, ever := firstBackoff, time.Now(), false
	for {
		ended := once(ctx)
		worked := s.down()
		if ctx.Err() != nil {
			return nil
		}
		ever = ever || worked > 0
		if !ever && s.gaveUp(began) {
			return ended.Err
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

// Up tells that the tool does transactions now. It may be called for each of them.
func (s *Supervisor) Up() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.upSince.IsZero() {
		return
	}
	s.settle(time.Now())
	s.upSince, s.downSince = time.Now(), time.Time{}
	if s.Warmup <= 0 {
		s.phase(metrics.Steady)
		return
	}
	s.phase(metrics.Warmup)
	began := s.upSince
	s.warm = time.AfterFunc(s.Warmup, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.upSince.Equal(began) {
			s.phase(metrics.Steady)
		}
	})
}

func (s *Supervisor) phase(p metrics.Phase) {
	s.Load.SetPhase(p)
	for _, l := range s.Beside {
		l.SetPhase(p)
	}
}

// down marks the tool as not working and returns for how long it had worked.
func (s *Supervisor) down() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.warm != nil {
		s.warm.Stop()
	}
	s.phase(metrics.Stopped)
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
		s.Load.Skipped(metrics.Down, 0)
	}
}

// Sleep waits for d and says false if ctx has ended, also before a wait that is none.
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

// Retry calls f with growing pauses until it succeeds, logging and counting each failure as a
// connection error, or until ctx ends. An error wrapped by Final is not retried.
func (s *Supervisor) Retry(ctx context.Context, what string, f func(context.Context) error) error {
	backoff, began := firstBackoff, time.Now()
	for {
		err := f(ctx)
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
		s.Load.Error(metrics.Connection)
		s.Log.Warn(what+" failed; it is tried again", "err", err, "pause", backoff)
		if !Sleep(ctx, backoff) {
			return ctx.Err()
		}
		backoff = min(2*backoff, lastBackoff)
	}
}

func (s *Supervisor) gaveUp(began time.Time) bool {
	return s.GiveUp > 0 && time.Since(began) >= s.GiveUp
}

// Final marks an error that no retry can mend, such as a missing program.
func Final(err error) error { return &finalError{err} }

type finalError struct{ err error }

func (e *finalError) Error() string { return e.err.Error() }
func (e *finalError) Unwrap() error { return e.err }
