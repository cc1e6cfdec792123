package platform

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
)

// maxDeputies is MAX_DEPUTIES of bpf/deputies.h, which describes deputies.
const maxDeputies = 3

// crewOf are the tracepoints whose programs have deputies where they may be preempted, each with its
// entry in the map crews: a name of enum crew in bpf/deputies.h. At all others that the agent uses the kernel
// itself has disabled preemption (bpf/README.md).
var crewOf = map[string]string{
	"sock_recv_length":   "CREW_RECEIVED",
	"sock_send_length":   "CREW_SENT",
	"tcp_sendmsg_locked": "CREW_SENDING",
	"sk_data_ready":      "CREW_SENDING_LOCAL",
	"sched_process_exec": "CREW_EXECUTED",
	"sched_process_exit": "CREW_ENDED",
}

// Names of the maps: socketCrewsMap is that of the tracepoints of Dispatcher.
const (
	crewsMap       = "crews"
	socketCrewsMap = "socket_crews"
)

// deputyMark separates a program's name from the rank of its deputy.
const deputyMark = "#"

// deputy is the name of a program's deputy; of rank 0 it is the program's own.
func deputy(program string, rank int) string {
	if rank == 0 {
		return program
	}
	return program + deputyMark + strconv.Itoa(rank)
}

// Deputise gives each program that may be preempted on this kernel its deputies: copies, which Crews
// finds.
func (k *Kernel) Deputise(spec *ebpf.CollectionSpec) error {
	if k.Deputies == 0 {
		return nil
	}
	if err := spec.Variables["deputies"].Set(uint32(k.Deputies)); err != nil {
		return fmt.Errorf("reading BPF programs: %w", err)
	}
	copies := map[string]*ebpf.ProgramSpec{}
	for name, p := range spec.Programs {
		if _, ok := crewOf[p.AttachTo]; !ok || p.AttachType != ebpf.AttachTraceRawTp {
			continue
		}
		for rank := 1; rank <= k.Deputies; rank++ {
			copies[deputy(name, rank)] = p.Copy()
		}
	}
	for name, p := range copies {
		spec.Programs[name] = p
	}
	return nil
}

// Crews are a collection's programs by their names, each with its deputies.
func Crews(spec *ebpf.CollectionSpec, loaded *ebpf.Collection) map[string]*Crew {
	crews := map[string]*Crew{}
	numbers := crewNumbers(spec)
	for name := range loaded.Programs {
		if strings.Contains(name, deputyMark) {
			continue
		}
		at := spec.Programs[name].AttachTo
		c := &Crew{spec: spec.Programs[name], number: numbers[crewOf[at]], states: loaded.Maps[crewsMap]}
		if programsAt[at] != "" {
			c.states = loaded.Maps[socketCrewsMap]
		}
		for rank := 0; loaded.Programs[deputy(name, rank)] != nil; rank++ {
			c.programs = append(c.programs, loaded.Programs[deputy(name, rank)])
		}
		crews[name] = c
	}
	return crews
}

// crewNumbers are the entries of the map crews by their names.
func crewNumbers(spec *ebpf.CollectionSpec) map[string]uint32 {
	numbers := map[string]uint32{}
	var names *btf.Enum
	if spec.Types.TypeByName("crew", &names) == nil {
		for _, v := range names.Values {
			numbers[v.Name] = uint32(v.Value)
		}
	}
	return numbers
}
