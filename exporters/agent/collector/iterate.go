package collector

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// oneByOne is for how many processes an iterator each (46 us) is cheaper than one over
// every open file of the node (0.4 us each).
const oneByOne = 256

// SocketsOf returns what an iterator over files reports of the sockets of followed processes, a T for each; nothing of
// a process that has ended. It queries the kernel, not the processes' /proc, so it needs no right to read them and
// waits for nothing that a process or its storage can hold. otherNamespace is true if the process ids are of another
// PID namespace.
func SocketsOf[T any](program *ebpf.Program, pids []int, otherNamespace bool) ([]T, error) {
	if otherNamespace && len(pids) > 0 || len(pids) > oneByOne {
		// Numbers of another PID namespace mean nothing to the iterator. Then it reads all
		// processes, and the program leaves out those that are not followed.
		pids = []int{0}
	}
	var states []T
	for _, pid := range pids {
		text, err := iterate(program, pid)
		if errors.Is(err, unix.ESRCH) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("sockets of process %d: %w", pid, err)
		}
		var one T
		size := int(unsafe.Sizeof(one))
		if n := len(text) / size; n > 0 {
			more := make([]T, n)
			copy(unsafe.Slice((*byte)(unsafe.Pointer(&more[0])), n*size), text)
			states = append(states, more...)
		}
	}
	return states, nil
}

// iterate runs an iterator over a process's files, or (0) over those of all.
func iterate(program *ebpf.Program, pid int) ([]byte, error) {
	// union bpf_iter_link_info, task: thread, process, descriptor of a process.
	info := [4]uint32{1: uint32(pid)}
	attach := struct {
		program, target, attachType, flags uint32
		info                               unsafe.Pointer
		infoLength, _                      uint32
	}{
		program:    uint32(program.FD()),
		attachType: unix.BPF_TRACE_ITER,
		info:       unsafe.Pointer(&info),
		infoLength: uint32(unsafe.Sizeof(info)),
	}
	link, err := bpfCall(unix.BPF_LINK_CREATE, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	if err != nil {
		return nil, fmt.Errorf("attach the iterator: %w", err)
	}
	defer unix.Close(link)
	create := struct{ link, flags uint32 }{link: uint32(link)}
	fd, err := bpfCall(unix.BPF_ITER_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, fmt.Errorf("create the iterator: %w", err)
	}
	defer unix.Close(fd)
	var text []byte
	buffer := make([]byte, 16*1024)
	for {
		n, err := unix.Read(fd, buffer)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			// Very many files and none of interest: it goes on from there.
		case err != nil:
			return nil, fmt.Errorf("read the iterator: %w", err)
		case n == 0:
			return text, nil
		default:
			text = append(text, buffer[:n]...)
		}
	}
}

func bpfCall(command uintptr, attributes unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attributes), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}
