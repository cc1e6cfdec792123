package rig

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Scheduling is how threads share the CPUs with other load on the machine.
type Scheduling struct {
	Policy, Priority uint32
	Nice             int32
}

var (
	Normal = Scheduling{}
	// Punctual is for what must not wait for other load and computes little: SCHED_RR, at its lowest priority.
	Punctual = Scheduling{Policy: 2, Priority: 1}
	// Preferred is for a database server, too. Its threads spin for locks, MariaDB's for the one of a group of commits:
	// punctual ones would keep the CPU from the thread that has the lock, and all others from the machine.
	Preferred = Scheduling{Nice: -20}
)

// ScheduleTest has this process scheduled so until the test's end.
func ScheduleTest(t T, s Scheduling) error {
	t.Helper()
	t.Cleanup(func() {
		if err := Schedule(Normal); err != nil {
			t.Errorf("%v", err)
		}
	})
	return Schedule(s)
}

// Punctually returns what a command begins with that is to be punctual.
func Punctually(t T) []string {
	t.Helper()
	return []string{Tool(t, "chrt"), "--rr", fmt.Sprint(Punctual.Priority)}
}

// Schedule sets how this process's threads, and those they will start, are scheduled.
func Schedule(s Scheduling) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: s.Policy, Priority: s.Priority, Nice: s.Nice}
		if err := unix.SchedSetAttr(id, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
