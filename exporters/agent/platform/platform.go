// Package platform detects what the running kernel has for the agent's BPF programs: the way to watch calls on sockets,
// what it lacks, and what that costs the user.
package platform

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// AttachMode is a way for a program to run in the task that calls on a socket.
type AttachMode string

// The ways, and the value for the best one. Each has programs of its own, with one body: bpf/query/hooks.h.
const (
	// Auto is what was seen to work on such a kernel.
	Auto AttachMode = "auto"
	// Tracepoints are sock_recv_length and sock_send_length (Linux 6.3), by BTF.
	Tracepoints AttachMode = "tracepoints"
	// WithBackups are the same where they may be preempted, or as if they might be: each program has
	// backup programs.
	WithBackups AttachMode = "backup-programs"
	// Functions are the ends of the kernel's own functions for each family of sockets.
	Functions AttachMode = "functions"
)

// SocketTracepoints are what Tracepoints and WithBackups need.
var SocketTracepoints = []string{"sock_recv_length", "sock_send_length"}

// Kernel is what the agent's programs have to know of the kernel.
type Kernel struct {
	// AttachMode is Tracepoints or Functions: Auto and WithBackups are only requested, and Backups shows the latter.
	AttachMode AttachMode
	// Preemptible is set if a task may lose the CPU within a program of this mode: another
	// task's run of the program on this CPU is then missed.
	Preemptible bool
	// Backups is how many each program that may be preempted has: bpf/backups.h.
	Backups int
	// StartUnderLock is set if task creation shall be seen at sched_wakeup_new, which has the
	// run queue's lock, because a program at sched_process_fork may be preempted.
	StartUnderLock bool
	// Types are the kernel's own.
	Types *btf.Spec
	// Features are what this kernel has.
	Features *Features
}

// This returns what the running kernel has. The answer is found once.
var This = sync.OnceValues(func() (*Kernel, error) { return find(Auto) })

var (
	findingOthers sync.Mutex
	others        = map[AttachMode]*Kernel{}
)

// Find is This with a given mode, which may not be the right one. Calls with the same mode return the same
// Kernel.
func Find(wanted AttachMode) (*Kernel, error) {
	if wanted == Auto || wanted == "" {
		return This()
	}
	findingOthers.Lock()
	defer findingOthers.Unlock()
	if k := others[wanted]; k != nil {
		return k, nil
	}
	k, err := find(wanted)
	if err == nil {
		others[wanted] = k
	}
	return k, err
}

func find(wanted AttachMode) (*Kernel, error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, Explain(fmt.Errorf("the kernel's type information: %w", err))
	}
	k := &Kernel{Types: types, Features: NewFeatures()}
	held := true
	var probing error
	if k.has(SocketTracepoints...) {
		if held, probing = tracepointsHoldPreemption(types); probing != nil {
			// It could not be tried. Tracepoints hold no preemption since Linux 7.0 ("tracing: Guard
			// __DECLARE_TRACE() use of __DO_TRACE_CALL() with SRCU-fast"); a vendor's kernel
			// may have that earlier, which is why the trial comes first.
			held = !since(7, 0)
		}
	}
	k.choose(wanted, held, fullPreemption())
	k.findFeatures()
	return k, nil
}

// choose sets the mode, given what the kernel does: whether its tracepoints hold preemption, and
// whether tasks are preempted inside of the kernel.
func (k *Kernel) choose(wanted AttachMode, held, preempted bool) {
	switch {
	case wanted == Functions, wanted == Auto && !k.has(SocketTracepoints...):
		k.AttachMode = Functions
		k.Preemptible = preempted
	default:
		k.AttachMode = Tracepoints
		if wanted == WithBackups || wanted == Auto && !held {
			k.Backups = maxBackups
		}
		k.Preemptible = !held || k.Backups > 0
	}
	// A real-time kernel gives no memory under that lock.
	k.StartUnderLock = k.AttachMode != Functions && !held && !realTime()
	switch {
	case !k.Preemptible || k.Backups > 0:
	case k.AttachMode == Functions:
		k.Features.SetUnavailable(ExclusiveRuns, errors.New(
			"the kernel has no tracepoint sock_recv_length (Linux 6.3), and preempts tasks within its own functions (preempt=full)"))
	default:
		k.Features.SetUnavailable(ExclusiveRuns, errors.New("tracepoints can be preempted here (Linux 7.0), and backup programs were not requested"))
	}
}

// has reports whether the kernel has all of these tracepoints.
func (k *Kernel) has(tracepoints ...string) bool { return len(k.Missing(tracepoints...)) == 0 }

// Missing returns which of these tracepoints the kernel has not.
func (k *Kernel) Missing(tracepoints ...string) []string { return missing(k.Types, tracepoints...) }

func missing(types *btf.Spec, tracepoints ...string) []string {
	var missing []string
	for _, name := range tracepoints {
		var t *btf.Typedef
		if types.TypeByName("btf_trace_"+name, &t) != nil {
			missing = append(missing, name)
		}
	}
	return missing
}

// fullPreemption reports whether tasks are preempted while they are in the kernel, as far as can be known: debugfs has
// the current mode, the command line and the build the configured one.
func fullPreemption() bool {
	if now, err := os.ReadFile("/sys/kernel/debug/sched/preempt"); err == nil {
		return bytes.Contains(now, []byte("(full)")) || bytes.Contains(now, []byte("(lazy)"))
	}
	if line, err := os.ReadFile("/proc/cmdline"); err == nil {
		if _, mode, ok := bytes.Cut(line, []byte("preempt=")); ok {
			return bytes.HasPrefix(mode, []byte("full")) || bytes.HasPrefix(mode, []byte("lazy"))
		}
	}
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	build := unix.ByteSliceToString(u.Version[:])
	for _, word := range bytes.Fields([]byte(build)) {
		if s := string(word); s == "PREEMPT" || s == "PREEMPT_RT" || s == "PREEMPT_LAZY" {
			return true
		}
	}
	return false
}

// realTime reports whether this is a kernel with PREEMPT_RT.
func realTime() bool {
	text, err := os.ReadFile("/sys/kernel/realtime")
	return err == nil && bytes.HasPrefix(text, []byte("1"))
}

// since reports whether the running kernel's version is this one or a later one.
func since(major, minor int) bool {
	var u unix.Utsname
	var v [2]int
	if unix.Uname(&u) == nil {
		_, _ = fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &v[0], &v[1])
	}
	return v[0] > major || v[0] == major && v[1] >= minor
}
