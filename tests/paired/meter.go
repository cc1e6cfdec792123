package paired

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CPUOf is the CPU time of processes, of all their threads, in seconds; exact to the nanosecond. What the kernel
// does while it switches to another process is the other's, and nobody's if that is the idle one.
func CPUOf(pids ...int) Meter {
	return func() (sum float64, err error) {
		for _, pid := range pids {
			var t unix.Timespec
			if err := unix.ClockGettime(cpuClock(pid), &t); err != nil {
				return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
			}
			sum += float64(t.Sec) + float64(t.Nsec)/1e9
		}
		return sum, nil
	}
}

// cpuClock is the number of a process's clock; see clock_getcpuclockid(3).
func cpuClock(pid int) int32 {
	const scheduler = 2 // of all clocks of a process, the one that counts in nanoseconds
	return int32(^pid)<<3 | scheduler
}

// Busy is the time that this machine's CPUs were not idle, in seconds: all processes', interrupts' and the kernel's. It
// returns false if the kernel exposes no idle states.
func Busy(sysfs string) (Meter, bool) {
	files, err := filepath.Glob(filepath.Join(sysfs, "devices/system/cpu/cpu[0-9]*/cpuidle/state*/time"))
	if err != nil || len(files) == 0 {
		return nil, false
	}
	begin := time.Now()
	return func() (float64, error) {
		busy := time.Since(begin).Seconds() * float64(runtime.NumCPU())
		for _, path := range files {
			text, err := os.ReadFile(path)
			if err != nil {
				return 0, err
			}
			us, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", path, err)
			}
			busy -= us / 1e6
		}
		return busy, nil
	}, true
}
