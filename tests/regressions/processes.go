package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/prometheus/procfs"
)

const reloadSignal = syscall.SIGHUP

// processes returns the processes whose command line begins with a program and has a part.
func processes(program, part string) (pids []int, err error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	for _, p := range all {
		line, err := p.CmdLine()
		if err != nil || len(line) == 0 {
			continue // it has just ended, or is the kernel's
		}
		if line[0] == program && strings.Contains(strings.Join(line, "\x00"), part) {
			pids = append(pids, p.PID)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("no process %s with %s: is the lab up (make lab-status)?", program, part)
	}
	return pids, nil
}

// replicas returns the processes of a class's replicas.
func replicas(o options, class string) ([]int, error) {
	return processes(filepath.Join(o.dir, "bin", "longhorn-engine"), filepath.Join(o.dir, "classes", class, "replicas"))
}

func signalAll(pids []int, s syscall.Signal) error {
	for _, pid := range pids {
		if err := syscall.Kill(pid, s); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	return nil
}
