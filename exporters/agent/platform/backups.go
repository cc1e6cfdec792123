package platform

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// maxBackups is MAX_BACKUPS of bpf/backups.h, which describes backup programs.
const maxBackups = 3

// groupOf are the tracepoints whose programs have backup programs where they may be preempted, each with its entry in
// the map program_groups: a name of enum program_group in bpf/backups.h. At all others that the agent uses the kernel
// itself has disabled preemption (bpf/README.md).
var groupOf = map[string]string{
	"sock_recv_length":   "GROUP_RECEIVED",
	"sock_send_length":   "GROUP_SENT",
	"tcp_sendmsg_locked": "GROUP_SENDING",
	"sk_data_ready":      "GROUP_SENDING_LOCAL",
	"sched_process_exec": "GROUP_EXECUTED",
	"sched_process_exit": "GROUP_ENDED",
}

// Names of the maps: socketGroupsMap is that of the tracepoints of Dispatcher.
const (
	groupsMap       = "program_groups"
	socketGroupsMap = "socket_groups"
)

// backupMark separates a program's name from the rank of its backup program.
const backupMark = "#"

// backup is the name of a program's backup program; of rank 0 it is the program's own.
func backup(program string, rank int) string {
	if rank == 0 {
		return program
	}
	return program + backupMark + strconv.Itoa(rank)
}

// AddBackups gives each program that may be preempted on this kernel its backup programs: copies, which ProgramGroups
// finds.
func (k *Kernel) AddBackups(spec *ebpf.CollectionSpec) error {
	if k.Backups == 0 {
		return nil
	}
	if err := spec.Variables["backups"].Set(uint32(k.Backups)); err != nil {
		return fmt.Errorf("reading BPF programs: %w", err)
	}
	copies := map[string]*ebpf.ProgramSpec{}
	for name, p := range spec.Programs {
		if _, ok := groupOf[p.AttachTo]; !ok || p.AttachType != ebpf.AttachTraceRawTp {
			continue
		}
		for rank := 1; rank <= k.Backups; rank++ {
			copies[backup(name, rank)] = p.Copy()
		}
	}
	for name, p := range copies {
		spec.Programs[name] = p
	}
	return nil
}

// ProgramGroups are a collection's programs by their names, each with its backup programs.
func ProgramGroups(spec *ebpf.CollectionSpec, loaded *ebpf.Collection) map[string]*ProgramGroup {
	groups := map[string]*ProgramGroup{}
	numbers := groupNumbers(spec)
	for name := range loaded.Programs {
		if strings.Contains(name, backupMark) {
			continue
		}
		at := spec.Programs[name].AttachTo
		c := &ProgramGroup{spec: spec.Programs[name], number: numbers[groupOf[at]], states: loaded.Maps[groupsMap]}
		if programsAt[at] != "" {
			c.states = loaded.Maps[socketGroupsMap]
		}
		for rank := 0; loaded.Programs[backup(name, rank)] != nil; rank++ {
			c.programs = append(c.programs, loaded.Programs[backup(name, rank)])
		}
		groups[name] = c
	}
	return groups
}

// groupNumbers are the entries of the map program_groups by their names.
func groupNumbers(spec *ebpf.CollectionSpec) map[string]uint32 {
	numbers := map[string]uint32{}
	var names *btf.Enum
	if spec.Types.TypeByName("program_group", &names) == nil {
		for _, v := range names.Values {
			numbers[v.Name] = uint32(v.Value)
		}
	}
	return numbers
}
