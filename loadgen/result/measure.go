package result

import (
	"context"
	"fmt"
	"math"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Warmup is how long a load runs before it is measured. Least is what the load itself needs until
// it calls itself steady; what it counted in that time is thrown away. With Most, it goes on until
// its rate is steady, at most that long.
type Warmup struct {
	Least, Most time.Duration
	// Beside are further loads that the same work makes: what they counted in that time is thrown away, too.
	Beside []*metrics.Load
}

// Measure does work for duration and returns what load counted in that time. The time starts when the load is steady,
// and so does the count: what comes before (making tables, warm-up, a tool or a server that is not up yet) is in
// neither. Of a tool that reports in intervals, both begin and end with a report. It ends early if ctx or work does.
// What is under way at its end may end in good order and is counted, but how long that takes is not in the time; and of
// the rate is only as much of it as was not made up for by what was under way at its begin.
func Measure(ctx context.Context, load *metrics.Load, target float64, warmup Warmup, duration time.Duration, work func(context.Context)) (Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	steady := load.CountFromSteady()
	go func() {
		work(ctx)
		close(done)
	}()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var began, ended, warm time.Time
	var atEnd uint64
	up := false // at the end
	var cpu time.Duration
	var rate steadiness
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-ctx.Done():
			ended, atEnd, up = time.Now(), load.Tally().Completed, load.Phase() == metrics.Steady
			<-done
			running = false
		case now := <-poll.C:
			if began.IsZero() && load.Phase() == metrics.Steady {
				if warm.IsZero() {
					warm = steady()
				}
				if now.Sub(warm) >= warmup.Most || rate.steady(now, load.Tally().Completed) {
					began, cpu = warm, cpuTime()
					if warmup.Most > 0 {
						began = load.ResetTally()
					}
					for _, l := range warmup.Beside {
						l.ResetTally()
					}
				}
			}
			if !began.IsZero() && now.Sub(began) >= duration {
				ended, atEnd, up = now, load.Tally().Completed, load.Phase() == metrics.Steady
				stop()
				<-done
				running = false
			}
		}
	}
	if began.IsZero() {
		return Result{}, fmt.Errorf("the load did not become steady")
	}
	tally := load.Tally()
	if ended.IsZero() {
		ended, atEnd = time.Now(), tally.Completed
	}
	// One that was killed has reported up to some time before.
	if report := load.LastReport(); report.After(ended) || up && report.After(began) {
		ended, atEnd = report, tally.Completed
	}
	r := New(load.Labels(), target, ended.Sub(began), tally)
	if late := tally.Completed - atEnd; r.Seconds > 0 {
		r.Rate = float64(tally.Completed-min(late, tally.Carried)) / r.Seconds
	}
	r.parts = Parts{Began: began, Response: tally.Response, Service: tally.Service}
	r.WarmedUp = began.Sub(warm).Seconds()
	if warmup.Most > 0 && !rate.was {
		r.Notes = append(r.Notes, fmt.Sprintf("the rate was not steady after a warm-up of %v", warmup.Most))
	}
	if r.Completed > 0 {
		r.CPUPer1000 = (cpuTime() - cpu).Seconds() / float64(r.Completed) * 1000
	}
	return r, nil
}

// Short notes in a result that its time is shorter than the requested one, and returns that as an error; nil if it is
// not.
func (r *Result) Short(requested time.Duration) error {
	if r.Seconds >= requested.Seconds() {
		return nil
	}
	err := fmt.Errorf("ended after %.1f s of %v", math.Floor(10*r.Seconds)/10, requested) // 59.99 s are not 60.0
	r.Notes = append(r.Notes, err.Error())
	return err
}

// cpuTime is the CPU time this process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
