package sandbox

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
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
	folder, err := os.Stat(dir)
	if err != nil {
		folder = nil // removed: what is left of the lab goes by its marks alone
	}
	var pids []int
	for _, p := range all {
		if p.PID != os.Getpid() && (inNamespace(p, dir) || marked(p, dir)) && sees(p, dir, folder) {
			pids = append(pids, p.PID)
		}
	}
	return pids, nil
}

// sees reports whether a process has the lab's folder at dir: where it has another one there, as in a container, it is another lab's.
func sees(p procfs.Proc, dir string, folder os.FileInfo) bool {
	there, err := os.Stat(filepath.Join("/proc", strconv.Itoa(p.PID), "root", dir))
	return err != nil || folder == nil || os.SameFile(folder, there)
}

// Find returns the first of the lab's processes that has all the words as arguments, its
// program among them.
func Find(dir string, words ...string) (int, error) {
	pids, err := Processes(dir)
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		args := strings.Split(strings.TrimRight(string(text), "\x00"), "\x00")
		if !slices.ContainsFunc(words, func(w string) bool { return !slices.Contains(args, w) }) {
			return pid, nil
		}
	}
	return 0, fmt.Errorf("the lab in %s has no process with %q in its command line", dir, words)
}

// inNamespace reports whether the process, or what is left of it, is in the lab's mount namespace. On a busy machine,
// the first thread of a process that is being killed can exit long before the others; the last of these would still
// take the namespace's mounts with it.
func inNamespace(p procfs.Proc, dir string) bool {
	if threadInNamespace(p, dir) {
		return true
	}
	if stat, err := p.Stat(); err != nil || stat.State != "Z" {
		return false
	}
	threads, err := procfs.AllThreads(p.PID)
	if err != nil {
		return false
	}
	for _, t := range threads {
		if t.PID != p.PID && threadInNamespace(t, dir) {
			return true
		}
	}
	return false
}

func threadInNamespace(p procfs.Proc, dir string) bool {
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
	kept := namespaces{}
	defer kept.release()
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
			kept.hold(pid)
		}
		for _, pid := range pids {
			// A stopped process dies of SIGKILL too; one that is gone is no error.
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Hold keeps the mount namespaces of the lab's processes until release is called: what Kill does
// while it kills, for a caller that lets something else end them.
func Hold(dir string) (release func(), err error) {
	pids, err := Processes(dir)
	if err != nil {
		return nil, err
	}
	kept := namespaces{}
	for _, pid := range pids {
		kept.hold(pid)
	}
	return kept.release, nil
}

// namespaces are mount namespaces held open, by their names.
type namespaces map[string]*os.File

func (kept namespaces) release() {
	for _, f := range kept {
		f.Close()
	}
}

// hold holds a process's mount namespace open, each namespace once.
func (kept namespaces) hold(pid int) {
	paths, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/ns/mnt", pid))
	if err != nil {
		return
	}
	for _, path := range paths { // one of its threads will do: see inNamespace
		name, err := os.Readlink(path)
		if err != nil {
			continue
		}
		if kept[name] == nil {
			if f, err := os.Open(path); err == nil {
				kept[name] = f
			}
		}
		return
	}
}
