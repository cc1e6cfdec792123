package fabric

import (
	"errors"
	"fmt"
	"io"
	"maps"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// fabricProgram is a program, and the tracepoint of the kernel's module that it is for.
type fabricProgram struct{ name, tracepoint string }

// mapSizes are the entries of the kernel's maps. The operations of a path or export are bounded by
// its queues: 128 each, one for each CPU.
var mapSizes = map[string]uint32{
	"disks":       maxPeers,
	"exports":     maxPeers,
	"controllers": maxPeers,
	"operations":  64 * operation.MaxVolumes,
	"latencies":   maxPeers * 5, // read, write, unmap, sync, other: as they are used
	"unanswered":  maxPeers,
}

// fabricKernel is the kernel side of the initiator or of the target.
type fabricKernel struct {
	collection *ebpf.Collection
	hooks      []fabricHook
	links      []io.Closer
	// programs are the collection's, as their costs are reported, and sizes the entries of its maps.
	programs map[string]bpfstats.Program
	sizes    map[string]uint32
	// dispatch passes calls on sockets on to the programs; nil of those that follow none.
	dispatch *platform.Dispatcher
}

// fabricHook is where a program is attached.
type fabricHook struct {
	program, to string
	attach      func() (io.Closer, error)
}

func newKernel(collection *ebpf.Collection) *fabricKernel {
	k := &fabricKernel{collection: collection, programs: map[string]bpfstats.Program{}, sizes: mapSizes}
	for name, p := range collection.Programs {
		k.programs[name] = fabricCost{p}
	}
	return k
}

// fabricCost is a program as its costs are reported.
type fabricCost struct{ program *ebpf.Program }

// Stats implements bpfstats.Program.
func (c fabricCost) Stats() (ebpf.ProgramStats, error) {
	stats, err := c.program.Stats()
	if err != nil {
		return ebpf.ProgramStats{}, err
	}
	return *stats, nil
}

// loadFabric loads a side's programs and attaches them. The modules they are for must be loaded.
func loadFabric(wire fabricWire, programs []fabricProgram) (*fabricKernel, error) {
	spec, err := fabricSpec(wire, programs)
	if err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		return nil, fmt.Errorf("load: %w", platform.Explain(err))
	}
	k := newKernel(collection)
	for _, p := range programs {
		k.hooks = append(k.hooks, fabricHook{p.name, p.tracepoint, func() (io.Closer, error) {
			return link.AttachRawTracepoint(link.RawTracepointOptions{Name: p.tracepoint, Program: collection.Programs[p.name]})
		}})
	}
	if err := k.attach(); err != nil {
		return nil, errors.Join(err, k.Close())
	}
	return k, nil
}

// attach begins the counting.
func (k *fabricKernel) attach() error {
	for _, h := range k.hooks {
		l, err := h.attach()
		if err != nil {
			return fmt.Errorf("attach %s to %s: %w", h.program, h.to, platform.Explain(err))
		}
		k.links = append(k.links, l)
	}
	if err := k.collection.Variables["attached"].Set(collector.Monotonic()); err != nil {
		return fmt.Errorf("variable attached: %w", err)
	}
	return nil
}

// tryFabric lets the kernel's verifier check a side's programs, and attaches nothing. As the modules they are for
// need not be there, what the programs know of these modules' types is taken for true.
func tryFabric(wire fabricWire, programs []fabricProgram) (*fabricKernel, error) {
	spec, err := fabricSpec(wire, programs)
	if err != nil {
		return nil, err
	}
	collection, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: spec.Types}})
	if err != nil {
		return nil, fmt.Errorf("load: %w", platform.Explain(err))
	}
	return newKernel(collection), nil
}

// fabricSpec is what is to be loaded for a side.
func fabricSpec(wire fabricWire, programs []fabricProgram) (*ebpf.CollectionSpec, error) {
	this, err := platform.This()
	if err != nil {
		return nil, err
	}
	_ = rlimit.RemoveMemlock() // before Linux 5.11; a refusal shows in the load
	spec, err := wire.load()
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, p := range programs {
		wanted[p.name] = true
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return !wanted[name] })
	sizeFabricMaps(this, spec, mapSizes)
	return spec, nil
}

// sizeFabricMaps gives maps their room.
func sizeFabricMaps(this *platform.Kernel, spec *ebpf.CollectionSpec, sizes map[string]uint32) {
	for name, entries := range sizes {
		spec.Maps[name].MaxEntries = entries
	}
	// Before Linux 6.1 the kernel warns of maps that grow within such programs: there they take their memory at once.
	var allocator *btf.Struct
	if this.Types.TypeByName("bpf_mem_alloc", &allocator) != nil {
		for _, m := range spec.Maps {
			m.Flags &^= unix.BPF_F_NO_PREALLOC
		}
		spec.Maps["latencies"].MaxEntries = operation.MaxVolumes
	}
}

// Close detaches and frees everything.
func (k *fabricKernel) Close() error {
	errs := k.detach()
	k.collection.Close()
	if k.dispatch != nil {
		errs = append(errs, k.dispatch.Close())
	}
	return errors.Join(errs...)
}

// detach ends the counting; what was counted can still be read. What begins ends first.
func (k *fabricKernel) detach() (errs []error) {
	for i := len(k.links) - 1; i >= 0; i-- {
		errs = append(errs, k.links[i].Close())
	}
	k.links = nil
	return errs
}

// events returns the programs' counters, summed over the CPUs.
func (k *fabricKernel) events() (sums [bpf.Events]uint64, err error) {
	err = collector.AddEvents(k.collection.Maps["events"], sums[:])
	return sums, err
}
