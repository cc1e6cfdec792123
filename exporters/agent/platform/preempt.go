package platform

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// preemptMask are the bits of the kernel's preempt_count that count preempt_disable(), soft and
// hard interrupts: in none of these can a task lose the CPU. The uppermost bit is inverted on x86.
const preemptMask = 0xffffff

// tracepointsHoldPreemption tries whether a program on a socket's tracepoint runs with preemption disabled: the program
// reads the kernel's count of that. One at sched_switch, where it always is disabled, shows whether this kernel
// counts at all; one that does not preempts nothing.
func tracepointsHoldPreemption(types *btf.Spec) (bool, error) {
	read, err := readPreemptCount(types)
	if err != nil {
		return false, err
	}
	seen, err := preemptCounts(map[string]asm.Instructions{"sock_send_length": read, "sched_switch": read})
	if err != nil {
		return false, err
	}
	socket, scheduler := seen["sock_send_length"], seen["sched_switch"]
	// Other senders do not matter: one run that could be preempted is enough.
	return !socket.preemptible || !scheduler.held, nil
}

// runs are what was seen of a program's runs.
type runs struct{ preemptible, held bool }

// preemptCounts runs programs at tracepoints that read the count as these instructions do.
func preemptCounts(reads map[string]asm.Instructions) (map[string]runs, error) {
	counts, err := ebpf.NewMap(&ebpf.MapSpec{Name: "preempt_counts", Type: ebpf.Array, KeySize: 4, ValueSize: 4, MaxEntries: uint32(2 * len(reads))})
	if err != nil {
		return nil, err
	}
	defer counts.Close()
	tracepoints := slices.Sorted(maps.Keys(reads))
	for i, tracepoint := range tracepoints {
		program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
			Name: "preempt_count", Type: ebpf.Tracing, AttachType: ebpf.AttachTraceRawTp, AttachTo: tracepoint, License: "GPL",
			Instructions: noteCount(slices.Clone(reads[tracepoint]), counts, int64(i)),
		})
		if err != nil {
			return nil, fmt.Errorf("the probe at %s: %w", tracepoint, err)
		}
		defer program.Close()
		l, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			return nil, fmt.Errorf("the probe at %s: %w", tracepoint, err)
		}
		defer l.Close()
	}
	if err := sendToSelf(); err != nil {
		return nil, err
	}
	seen := map[string]runs{}
	for i, tracepoint := range tracepoints {
		var preemptible, held uint32
		// A short sleep on a slow machine is over before the task is switched away from.
		for tries := 0; preemptible+held == 0; tries++ {
			if tries > 0 {
				time.Sleep(time.Millisecond)
			}
			if err := errors.Join(counts.Lookup(uint32(2*i), &preemptible), counts.Lookup(uint32(2*i+1), &held)); err != nil {
				return nil, err
			}
			if tries == probeTries {
				return nil, fmt.Errorf("the probe at %s did not run", tracepoint)
			}
		}
		seen[tracepoint] = runs{preemptible != 0, held != 0}
	}
	return seen, nil
}

// probeTries is how often, a millisecond apart, it is checked whether the programs have run.
const probeTries = 1000

// readPreemptCount returns instructions that leave the count in R6.
func readPreemptCount(types *btf.Spec) (asm.Instructions, error) {
	if runtime.GOARCH == "arm64" {
		var task *btf.Struct
		if err := types.TypeByName("task_struct", &task); err != nil {
			return nil, err
		}
		at, err := offset(task, "thread_info.preempt.count")
		if err != nil {
			return nil, err
		}
		return asm.Instructions{
			asm.FnGetCurrentTaskBtf.Call(),
			asm.LoadMem(asm.R6, asm.R0, at, asm.Word),
		}, nil
	}
	// A variable of its own or, in Linux 6.2 to 6.14, a part of pcpu_hot.
	var at int16
	var v *btf.Var
	if types.TypeByName("__preempt_count", &v) != nil {
		if err := types.TypeByName("pcpu_hot", &v); err != nil {
			return nil, fmt.Errorf("the kernel's preempt_count: %w", err)
		}
		hot, ok := btf.UnderlyingType(v.Type).(*btf.Struct)
		if !ok {
			return nil, errors.New("the kernel's preempt_count: pcpu_hot is no struct")
		}
		var err error
		if at, err = offset(hot, "preempt_count"); err != nil {
			return nil, err
		}
	}
	id, err := types.TypeID(v)
	if err != nil {
		return nil, err
	}
	const pseudoBTFID = asm.Register(3) // BPF_PSEUDO_BTF_ID: the kernel puts the variable's address
	variable := asm.LoadImm(asm.R1, int64(id), asm.DWord)
	variable.Src = pseudoBTFID
	return asm.Instructions{
		variable,
		asm.FnThisCpuPtr.Call(),
		asm.LoadMem(asm.R6, asm.R0, at, asm.Word),
	}, nil
}

// offset returns where in a struct the member is that a path of names leads to; members without a
// name are searched.
func offset(s btf.Type, path string) (int16, error) {
	name, rest, more := strings.Cut(path, ".")
	var members []btf.Member
	switch t := btf.UnderlyingType(s).(type) {
	case *btf.Struct:
		members = t.Members
	case *btf.Union:
		members = t.Members
	}
	for _, m := range members {
		inner := path
		if m.Name == name {
			if !more {
				return int16(m.Offset.Bytes()), nil
			}
			inner = rest
		} else if m.Name != "" {
			continue
		}
		if at, err := offset(m.Type, inner); err == nil {
			return int16(m.Offset.Bytes()) + at, nil
		}
	}
	return 0, fmt.Errorf("no member %s in the kernel's %s", path, s.TypeName())
}

// noteCount notes in entry 2*i that the program ran preemptible, or in the next that it did not.
func noteCount(read asm.Instructions, counts *ebpf.Map, i int64) asm.Instructions {
	return append(read,
		asm.And.Imm(asm.R6, preemptMask),
		asm.StoreImm(asm.RFP, -4, 2*i, asm.Word),
		asm.JEq.Imm(asm.R6, 0, "look up"),
		asm.StoreImm(asm.RFP, -4, 2*i+1, asm.Word),
		asm.LoadMapPtr(asm.R1, counts.FD()).WithSymbol("look up"),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "end"),
		asm.StoreImm(asm.R0, 0, 1, asm.Word),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("end"),
		asm.Return(),
	)
}

// sendToSelf sends a byte over a socket, where no program of the agent follows it.
func sendToSelf() error {
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ends[0])
	defer unix.Close(ends[1])
	_, err = unix.Write(ends[0], []byte{0})
	return err
}
