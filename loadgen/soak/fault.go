package soak

import (
	"context"
	"fmt"
	"time"
)

const (
	// mendTries is how often a fault's mending is tried in one start of the soak. The first pause between is the plan's
	// interval, and each is twice the one before: of 10 s, it is tried for 20 minutes.
	mendTries = 8
	// longestPause bounds the pauses.
	longestPause = 10 * time.Minute
)

// fault does and mends a fault at its times. What an earlier start did, it does not do again,
// but it mends what that left.
func (s *Soak) fault(ctx context.Context, f Fault) {
	gauge := s.faults.WithLabelValues(f.Name)
	done, ended, failed := s.happened(f.Name)
	if !done && !ended {
		done, failed = s.do(ctx, f)
	}
	if ended || !done {
		return
	}
	gauge.Set(1)
	// Also when the soak is stopped: a fault is never left behind. What was left by a soak that is over is due, and so
	// is what could not be done, or by half: it explains nothing that comes later.
	if !s.over && failed == "" {
		s.clock.until(ctx, s.began.Add(f.At+f.For))
	}
	detail := ""
	if err := s.mend(ctx, f); err != nil {
		if failed == "" {
			s.note(FaultEvent, f.Name, Unmended, err.Error())
			return
		}
		// There may be nothing to mend.
		detail = fmt.Sprintf("it was not done (%s), and not mended (%s)", failed, err)
	}
	gauge.Set(0)
	s.note(FaultEvent, f.Name, End, detail)
}

// do does a fault at its time, if the folder has its beginning. It returns whether it did, and why it failed.
func (s *Soak) do(ctx context.Context, f Fault) (done bool, failed string) {
	// After a suspend the time is seen only when a timer fires.
	slack := max(s.plan.Interval, longestWait)
	late := func() bool { return s.clock.since(s.began) > f.At+f.For+slack }
	switch {
	case s.over, f.At >= s.plan.Duration:
		return false, ""
	case !late() && !s.clock.until(ctx, s.began.Add(f.At)):
		return false, ""
	case late():
		s.note(FaultEvent, f.Name, Failed, missed)
		return false, ""
	}
	if err := s.note(FaultEvent, f.Name, Begin, ""); err != nil {
		// Killed in it, the next start would not mend it.
		s.log.Error("fault not done", "fault", f.Name, "err", err)
		_ = s.note(FaultEvent, f.Name, Failed, unrecorded)
		return false, ""
	}
	s.faults.WithLabelValues(f.Name).Set(1) // from its command's beginning on, as in the report
	if err := s.command(ctx, f.Do); err != nil {
		s.log.Error("fault failed", "fault", f.Name, "err", err)
		s.note(FaultEvent, f.Name, Failed, err.Error())
		return true, err.Error()
	}
	return true, ""
}

// mend undoes a fault. While the soak runs, it is retried if it fails.
func (s *Soak) mend(ctx context.Context, f Fault) (err error) {
	if len(f.Undo) == 0 {
		return nil
	}
	pause := min(s.plan.Interval, longestPause)
	for try := range mendTries {
		if try > 0 {
			if !s.clock.sleep(ctx, pause) {
				break
			}
			pause = min(2*pause, longestPause)
		}
		if err = s.command(ctx, f.Undo); err == nil {
			return nil
		}
		s.log.Error("fault could not be mended", "fault", f.Name, "try", try+1, "of", mendTries, "err", err)
	}
	return err
}

// command runs a fault's command within its time, also when the soak is stopped.
func (s *Soak) command(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), faultTimeout, errSlow)
	defer cancel()
	return command(ctx, args, commandGrace)
}

// happened reports whether an earlier start began a fault, whether all of it is past, and why it could not be done.
func (s *Soak) happened(fault string) (done, ended bool, failed string) {
	for _, e := range s.events {
		if e.Kind != FaultEvent || e.Name != fault {
			continue
		}
		switch {
		case e.What == Begin:
			done = true
		case e.What == End, e.Detail == missed, e.Detail == unrecorded:
			ended = true
		case e.What == Failed:
			failed = e.Detail
		}
	}
	return done, ended, failed
}
