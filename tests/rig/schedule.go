package rig

import (
	"errors"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// PunctualPolicy and PunctualPriority are how what must not wait for other load on the machine is scheduled: by
// SCHED_RR, at its lowest priority.
const (
	PunctualPolicy   = 2
	PunctualPriority = 1
)

// Schedule sets how this process's threads, and those they will start, are scheduled; 0 and 0
// are normal.
func Schedule(policy, priority uint32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
		if err := unix.SchedSetAttr(id, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}
