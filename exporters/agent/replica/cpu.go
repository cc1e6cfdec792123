package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// cpuInterval is how often the CPU time of engines and replicas is read. What a thread did since then goes with
// the thread.
const cpuInterval = 5 * time.Second

// threadCPU is the kernel's account of one thread, in nanoseconds: on a CPU, and ready for one.
type threadCPU struct{ ran, waited uint64 }

// processCPU is what a process's threads did since it is followed.
type processCPU struct {
	threadCPU
	// sent is how much of it is in the series.
	sent    threadCPU
	threads map[string]threadCPU
}

// add takes over what the threads' accounts are now. At the first sample it begins at 0.
func (p *processCPU) add(now map[string]threadCPU) {
	if p.threads != nil {
		for name, t := range now {
			before := p.threads[name]
			if t.ran < before.ran || t.waited < before.waited {
				before = threadCPU{} // another thread of that number
			}
			p.ran += t.ran - before.ran
			p.waited += t.waited - before.waited
		}
	}
	p.threads = now
}

// countCPU reads the CPU time of followed processes until ctx ends.
func (f *replicaFollower) countCPU(ctx context.Context) {
	collector.Every(ctx, f.log, cpuInterval, nil, func() {
		f.mu.Lock()
		processes := make([]*followedProcess, 0, len(f.byPID))
		for _, n := range f.byPID {
			processes = append(processes, n)
		}
		f.mu.Unlock()
		for _, n := range processes {
			now, err := readThreadsCPU(filepath.Join(f.options.ProcFS, strconv.Itoa(n.pid), "task"))
			if err != nil {
				f.limitedLog.Debug("CPU time of an engine or replica", "pid", n.pid, "err", err)
				continue
			}
			f.mu.Lock()
			n.cpu.add(now)
			f.mu.Unlock()
		}
	})
}

// readThreadsCPU reads the accounts of a process's threads in its folder task of procfs.
func readThreadsCPU(path string) (map[string]threadCPU, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxThreads + 1)
	if err != nil {
		return nil, err
	}
	if len(names) > maxThreads {
		return nil, fmt.Errorf("%s: more than %d threads", path, maxThreads)
	}
	all := make(map[string]threadCPU, len(names))
	turns := uint64(0)
	for _, name := range names {
		file := filepath.Join(path, name, "schedstat")
		text, err := untrusted.ReadProc(file, 256)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return nil, err
		}
		var t threadCPU
		var n uint64
		if _, err := fmt.Sscan(string(text), &t.ran, &t.waited, &n); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all[name] = t
		turns += n
	}
	if turns == 0 {
		return nil, errors.New("the kernel keeps no scheduling statistics (CONFIG_SCHED_INFO)")
	}
	return all, nil
}
