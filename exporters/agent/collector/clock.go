package collector

import (
	"time"

	"golang.org/x/sys/unix"
)

// Monotonic is the kernel's clock of the programs' times.
func Monotonic() uint64 {
	var t unix.Timespec
	// It cannot fail for this clock.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}

// BootTime is when the kernel's monotonic clock was zero, by the wall clock as it is now.
func BootTime() time.Time { return time.Now().Add(-time.Duration(Monotonic())) }
