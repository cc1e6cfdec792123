package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// machinePIDNamespace is the number of the PID namespace that the machine starts with,
// PROC_PID_INIT_INO in Linux's include/linux/proc_ns.h.
const machinePIDNamespace = 0xEFFFFFFC

// SetNamespace passes to the programs which process ids this procfs shows (bpf/followed.h). other is true if these are
// not of the agent's own PID namespace.
func SetNamespace(spec *ebpf.CollectionSpec, procfs string) (other bool, err error) {
	namespace, err := ShownNamespace(procfs)
	if err != nil {
		return false, err
	}
	if namespace != machinePIDNamespace {
		if err := spec.Variables["pid_namespace"].Set(namespace); err != nil {
			return false, err
		}
	}
	_, err = PIDNamespace(procfs)
	return err != nil, nil
}

// ShownNamespace returns the number of the PID namespace whose processes a procfs shows: the agent's own, or another
// one, read from its first process if the agent may.
func ShownNamespace(procfs string) (uint32, error) {
	if own, err := PIDNamespace(procfs); err == nil {
		return own, nil
	}
	info, err := os.Stat(filepath.Join(procfs, "1", "ns", "pid"))
	if err != nil {
		return 0, fmt.Errorf("PID namespace of %s (needs CAP_SYS_PTRACE if it is not the agent's own): %w", procfs, err)
	}
	return uint32(info.Sys().(*syscall.Stat_t).Ino), nil
}

// NewDispatcher returns what collectors share that follow calls on sockets of the processes that this procfs shows.
// Where its PID namespace is not known, collectors that need it report that.
func NewDispatcher(procfs string) *platform.Dispatcher {
	namespace, err := ShownNamespace(procfs)
	if err != nil || namespace == machinePIDNamespace {
		return &platform.Dispatcher{}
	}
	return &platform.Dispatcher{Namespace: namespace}
}

// dispatcherStats reports what the programs of a dispatcher cost.
type dispatcherStats struct{ dispatcher *platform.Dispatcher }

// NewDispatcherStats returns the collector of a dispatcher's own numbers, as those of other programs: plumbline_bpf_*.
func NewDispatcherStats(d *platform.Dispatcher) exporterkit.Collector { return dispatcherStats{d} }

// Update implements exporterkit.Collector.
func (s dispatcherStats) Update(ch chan<- prometheus.Metric) error {
	stats := bpfstats.Stats{Collector: "dispatcher", Programs: ProgramsOf(s.dispatcher.Programs())}
	return stats.Update(ch)
}

// ProgramsOf are the programs whose cost is reported: those that the kernel runs itself.
func ProgramsOf(groups map[string]*platform.ProgramGroup) map[string]bpfstats.Program {
	programs := map[string]bpfstats.Program{}
	for name, group := range groups {
		if !group.PassedOn() {
			programs[name] = group
		}
	}
	return programs
}
