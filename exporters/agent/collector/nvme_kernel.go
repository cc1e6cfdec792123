package collector

import (
	"errors"
	"fmt"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/nvme"
	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// The programs of each side, by the tracepoint of the kernel's module. The second of each comes first, so
// that of what is seen to begin the end is seen, too.
var (
	initiatorPrograms = []nvmeProgram{{nvme.NvmeProgNvmeRequestEnds, "nvme_complete_rq"}, {nvme.NvmeProgNvmeRequestBegins, "nvme_setup_cmd"}}
	targetPrograms    = []nvmeProgram{{nvme.NvmeProgNvmeServiceEnds, "nvmet_req_complete"}, {nvme.NvmeProgNvmeServiceBegins, "nvmet_req_init"}}
)

type nvmeProgram struct{ name, tracepoint string }

// nvmeMapSizes are the entries of the kernel's maps. The operations of a path or export are bounded by
// its queues: 128 each, one for each CPU.
var nvmeMapSizes = map[string]uint32{
	"disks":       nvmeMaxPeers,
	"exports":     nvmeMaxPeers,
	"controllers": nvmeMaxPeers,
	"operations":  64 * replicaMaxVolumes,
	"latencies":   nvmeMaxPeers * 5, // read, write, unmap, sync, other: as they are used
}

// nvmeKernel is the kernel side of the initiator or of the target.
type nvmeKernel struct {
	collection *ebpf.Collection
	links      []link.Link
}

// loadNVMe loads a side's programs and attaches them. The modules they are for must be loaded.
func loadNVMe(programs []nvmeProgram) (*nvmeKernel, error) {
	this, err := platform.This()
	if err != nil {
		return nil, err
	}
	_ = rlimit.RemoveMemlock() // before Linux 5.11; a refusal shows in the load
	spec, err := nvme.LoadNvme()
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, p := range programs {
		wanted[p.name] = true
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted[name] })
	for name, entries := range nvmeMapSizes {
		spec.Maps[name].MaxEntries = entries
	}
	// Before Linux 6.1 the kernel warns of maps that grow within such programs: there they take their memory at once.
	var allocator *btf.Struct
	if this.Types.TypeByName("bpf_mem_alloc", &allocator) != nil {
		for _, m := range spec.Maps {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
		}
		spec.Maps["latencies"].MaxEntries = replicaMaxVolumes
	}
	k := &nvmeKernel{}
	if k.collection, err = ebpf.NewCollection(spec); err != nil {
		return nil, fmt.Errorf("load: %w", platform.Explain(err))
	}
	for _, p := range programs {
		l, err := link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.tracepoint, Program: k.collection.Programs[p.name]})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("attach %s to %s: %w", p.name, p.tracepoint, platform.Explain(err)), k.Close())
		}
		k.links = append(k.links, l)
	}
	return k, nil
}

// Close detaches and frees everything.
func (k *nvmeKernel) Close() error {
	errs := k.detach()
	k.collection.Close()
	return errors.Join(errs...)
}

// detach ends the counting; what was counted can still be read. What begins ends first.
func (k *nvmeKernel) detach() (errs []error) {
	for i := len(k.links) - 1; i >= 0; i-- {
		errs = append(errs, k.links[i].Close())
	}
	k.links = nil
	return errs
}

// events returns the programs' counters, summed over the CPUs.
func (k *nvmeKernel) events() (sums [nvme.Events]uint64, err error) {
	for event := range sums {
		var cpus []uint64
		if err := k.collection.Maps["events"].Lookup(uint32(event), &cpus); err != nil {
			return sums, fmt.Errorf("map events: %w", err)
		}
		for _, n := range cpus {
			sums[event] += n
		}
	}
	return sums, nil
}
