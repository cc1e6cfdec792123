package driver

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// longestSleep is how late the end of a context may be noticed.
const longestSleep = 50 * time.Millisecond

// sharpen requests that the kernel wakes the calling thread on time, not up to 50 us later. If that fails, the lag that
// stays is measured like any other.
func sharpen() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) }

// sleepUntil waits for at, and returns false if ctx ended before. It sleeps in the kernel: the Go
// runtime's timers are up to a millisecond late when the process is idle. The caller has to be
// locked to its thread.
func sleepUntil(ctx context.Context, at time.Time) bool {
	for {
		if ctx.Err() != nil {
			return false
		}
		left := time.Until(at)
		if left <= 0 {
			return true
		}
		t := unix.NsecToTimespec(int64(min(left, longestSleep)))
		// An early return, by a signal, is seen above.
		_ = unix.ClockNanosleep(unix.CLOCK_MONOTONIC, 0, &t, nil)
	}
}
