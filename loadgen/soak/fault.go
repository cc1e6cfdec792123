package soak

import (
	"context"

	"github.com/plumbline/plumbline/loadgen/adapter"
)

// mendTries is how often a fault's mending is tried in one start of the soak. The first pause between is the plan's interval, and
// each is twice the one before: of 10 s, it is tried for 21 minutes.
const mendTries = 8

// fault does and mends a fault at its times. What an earlier start did, it does not do again,
// but it mends what that left.
func (s *Soak) fault(ctx context.Context, f Fault) {
	gauge := s.faults.WithLabelValues(f.Name)
	done, ended := s.happened(f.Name)
	if ended || !done && !s.do(ctx, f) {
		return
	}
	gauge.Set(1)
	// Also when the soak is told to stop: a fault is never left behind.
	s.clock.until(ctx, s.began.Add(f.At+f.For))
	if err := s.mend(ctx, f); err != nil {
		s.note(FaultEvent, f.Name, Unmended, err.Error())
		return
	}
	gauge.Set(0)
	s.note(FaultEvent, f.Name, End, "")
}

// do does a fault at its time, and says whether that was so.
func (s *Soak) do(ctx context.Context, f Fault) bool {
	late := func() bool { return s.clock.since(s.began) > f.At+f.For+s.plan.Interval }
	switch {
	case s.over, f.At >= s.plan.Duration:
		return false
	case !late() && !s.clock.until(ctx, s.began.Add(f.At)):
		return false
	case late():
		s.note(FaultEvent, f.Name, Failed, missed)
		return false
	}
	s.note(FaultEvent, f.Name, Begin, "")
	if err := s.command(ctx, f.Do); err != nil {
		s.log.Error("fault failed", "fault", f.Name, "err", err)
		s.note(FaultEvent, f.Name, Failed, err.Error())
	}
	return true
}

// mend undoes a fault. While the soak runs, it is tried again if it fails.
func (s *Soak) mend(ctx context.Context, f Fault) (err error) {
	if len(f.Undo) == 0 {
		return nil
	}
	pause := s.plan.Interval
	for try := range mendTries {
		if try > 0 {
			if !adapter.Sleep(ctx, pause) {
				break
			}
			pause *= 2
		}
		if err = s.command(ctx, f.Undo); err == nil {
			return nil
		}
		s.log.Error("fault could not be mended", "fault", f.Name, "try", try+1, "of", mendTries, "err", err)
	}
	return err
}

// command runs a fault's command within its time, also when the soak is told to stop.
func (s *Soak) command(ctx context.Context, args []string) error {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), faultTimeout, errSlow)
	defer cancel()
	return command(ctx, args)
}

// happened says whether an earlier start began a fault, and whether all of it is past.
func (s *Soak) happened(fault string) (done, ended bool) {
	for _, e := range s.events {
		if e.Kind == FaultEvent && e.Name == fault {
			done = done || e.What == Begin
			ended = ended || e.What == End || e.Detail == missed
		}
	}
	return done, ended
}
