package result

import (
	"context"
	"fmt"
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

// Measure does work for duration and returns what load counted in that time. The time starts
// when the load is steady, so what comes before (making tables, warm-up) is not in it. It ends
// early if ctx or work does. What is under way at its end may end in good order and is counted, but
// how long that takes is not in the time.
func Measure(ctx context.Context, load *metrics.Load, target float64, warmup Warmup, duration time.Duration, work func(context.Context)) (Result, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan struct{})
	go func() {
		work(ctx)
		close(done)
	}()
	poll := time.NewTicker(20 * time.Millisecond)
	defer poll.Stop()
	var began, ended, warm time.Time
	var cpu time.Duration
	var rate steadiness
	for running := true; running; {
		select {
		case <-done:
			running = false
		case <-ctx.Done():
			ended = time.Now()
			<-done
			running = false
		case now := <-poll.C:
			if began.IsZero() && load.Phase() == metrics.Steady {
				if warm.IsZero() {
					warm = now
				}
				if now.Sub(warm) >= warmup.Most || rate.steady(now, load.Tally().Completed) {
					if warmup.Least > 0 || warmup.Most > 0 {
						for _, l := range append([]*metrics.Load{load}, warmup.Beside...) {
							l.ResetTally()
						}
					}
					began, cpu = now, cpuTime()
				}
			}
			if !began.IsZero() && now.Sub(began) >= duration {
				ended = now
				stop()
				<-done
				running = false
			}
		}
	}
	if began.IsZero() {
		return Result{}, fmt.Errorf("the load did not become steady")
	}
	if ended.IsZero() {
		ended = time.Now()
	}
	tally := load.Tally()
	r := New(load.Labels(), target, ended.Sub(began), tally)
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

// Short notes in a result that its time is shorter than what was asked for, and returns that as an error; nil if it is not.
func (r *Result) Short(asked time.Duration) error {
	if r.Seconds >= asked.Seconds() {
		return nil
	}
	err := fmt.Errorf("ended after %.1f s of %v", r.Seconds, asked)
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
