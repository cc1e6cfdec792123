package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/cilium/ebpf"
)

// machinePIDNamespace is the number of the PID namespace that the machine starts with,
// PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h.
const machinePIDNamespace = 0xEFFFFFFC

// setNamespace passes to the programs which process ids this procfs shows (bpf/followed.h). other is true if these are
// not of the agent's own PID namespace.
func setNamespace(spec *ebpf.CollectionSpec, procfs string) (other bool, err error) {
	namespace, err := shownNamespace(procfs)
	if err != nil {
		return false, err
	}
	if namespace != machinePIDNamespace {
		if err := spec.Variables["pid_namespace"].Set(namespace); err != nil {
			return false, err
		}
	}
	_, err = pidNamespace(procfs)
	return err != nil, nil
}

// shownNamespace returns the number of the PID namespace whose processes a procfs shows: the agent's own, or another
// one, read from its first process if the agent may.
func shownNamespace(procfs string) (uint32, error) {
	if own, err := pidNamespace(procfs); err == nil {
		return own, nil
	}
	info, err := os.Stat(filepath.Join(procfs, "1", "ns", "pid"))
	if err != nil {
		return 0, fmt.Errorf("PID namespace of %s (needs CAP_SYS_PTRACE if it is not the agent's own): %w", procfs, err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino), nil
}

// followedBits are those that let programs leave all other processes alone (bpf/followed.h).
type followedBits struct {
	m *ebpf.Map

	mu   sync.Mutex
	bits [1024]uint64
	// many counts the followed processes behind each bit.
	many map[uint16]int
}

func newFollowedBits(c *ebpf.Collection) *followedBits {
	return &followedBits{m: c.Maps["followed"], many: map[uint16]int{}}
}

// mark keeps a process's bit: by is 1 or -1.
func (f *followedBits) mark(pid, by int) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	bit := uint16(pid)
	f.many[bit] += by
	word := uint32(bit >> 6)
	if f.many[bit] > 0 {
		f.bits[word] |= 1 << (bit & 63)
	} else {
		delete(f.many, bit)
		f.bits[word] &^= 1 << (bit & 63)
	}
	return f.m.Put(word, f.bits[word])
}
