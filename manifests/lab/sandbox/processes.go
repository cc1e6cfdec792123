package sandbox

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
)

// Processes lists the lab's processes: those in its mount namespace, and, where the machine
// allowed it none, those of its session that still carry its mark in their environment or
// work in its folder.
func Processes(dir string) ([]int, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, fmt.Errorf("listing processes: %w", err)
	}
	var pids []int
	for _, p := range all {
		if p.PID != os.Getpid() && (inNamespace(p, dir) || marked(p, dir)) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

func inNamespace(p procfs.Proc, dir string) bool {
	mounts, err := p.MountInfo()
	if err != nil {
		return false // gone, or a kernel thread
	}
	for _, m := range mounts {
		if m.FSType == "tmpfs" && m.Source == mountMark(dir) {
			return true
		}
	}
	return false
}

// Environment marks a process without a namespace of its own, and all it starts.
func Environment(dir string) string { return "PLUMBLINE_LAB=" + dir }

func marked(p procfs.Proc, dir string) bool {
	env, err := p.Environ()
	if err != nil {
		return false
	}
	for _, e := range env {
		if e == Environment(dir) {
			return true
		}
	}
	// PostgreSQL writes its title over its environment, but stays in its data directory.
	comm, err := p.Comm()
	if err != nil || comm != "postgres" {
		return false
	}
	cwd, err := p.Cwd()
	return err == nil && strings.HasPrefix(cwd, dir+"/")
}

// Kill ends every process of the lab and waits until the last is gone.
//
// Meanwhile it keeps their mount namespace. Otherwise the last process to end would unmount
// the volumes, and if that is the one that serves a volume's blocks it would wait, inside the
// kernel and for ever, for its own answer. Kept, the volume's server is gone before its file
// system is, and what it still had to write fails at once.
func Kill(dir string, deadline time.Duration) error {
	end := time.Now().Add(deadline)
	kept := map[string]*os.File{}
	defer func() {
		for _, f := range kept {
			f.Close()
		}
	}()
	for {
		pids, err := Processes(dir)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v of the lab do not end", pids)
		}
		for _, pid := range pids {
			keepNamespace(kept, pid)
		}
		for _, pid := range pids {
			// A stopped process dies of SIGKILL too; one that is gone is no error.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// keepNamespace holds a process's mount namespace open, each namespace once.
func keepNamespace(kept map[string]*os.File, pid int) {
	path := fmt.Sprintf("/proc/%d/ns/mnt", pid)
	name, err := os.Readlink(path)
	if err != nil || kept[name] != nil {
		return
	}
	if f, err := os.Open(path); err == nil {
		kept[name] = f
	}
}
