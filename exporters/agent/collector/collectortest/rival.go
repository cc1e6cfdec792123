package collectortest

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Rival lets a process run on one CPU alone, and runs f there in a thread that goes before it, until the test's end: f
// ends when stop is closed.
func Rival(t *testing.T, pid int, f func(stop <-chan struct{})) {
	t.Helper()
	if runtime.NumCPU() < 2 {
		testkit.Skip(t, "needs a second CPU, for the client and to read from")
	}
	cpu := unix.CPUSet{}
	cpu.Set(runtime.NumCPU() - 1)
	if err := unix.SchedSetaffinity(pid, &cpu); err != nil {
		t.Fatal(err)
	}
	stop, ended, ready := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(ended)
		// The thread ends with the goroutine, as it is not unlocked.
		runtime.LockOSThread()
		err := unix.SchedSetaffinity(0, &cpu)
		if err == nil {
			err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
		}
		ready <- err
		if err == nil {
			f(stop)
		}
	}()
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		close(stop)
		<-ended
	})
}

// BusyFor keeps a CPU.
func BusyFor(d time.Duration) {
	for begun := time.Now(); time.Since(begun) < d; {
	}
}
