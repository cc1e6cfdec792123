package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the unit of CPU times in procfs.
const clockTick = 10 * time.Millisecond

// childrenTime returns the CPU time of a process's ended children: for a postmaster, that of
// all past connections.
func childrenTime(pid int) (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	const user, system = 13, 14 // cutime and cstime, counted after the name; see proc(5)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%d/stat has only %d fields", pid, len(fields)+2)
	}
	var ticks int64
	for _, f := range []int{user, system} {
		n, err := strconv.ParseInt(fields[f], 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}
