package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// replicaKernel is the kernel side of one wire: its programs and maps (track.h).
type replicaKernel struct {
	wire          replicaWire
	collection    *ebpf.Collection
	groups        map[string]*platform.ProgramGroup // the collection's programs, each with its backup programs
	processEvents *ringbuf.Reader
	// hooks are the wire's that this kernel needs and has.
	hooks []replicaHook
	// otherNamespace is set if procfs shows another PID namespace than the agent's own.
	otherNamespace bool

	dispatch *platform.Dispatcher

	mu    sync.Mutex
	links map[string]io.Closer
}

// loadReplicaKernel loads the wire's programs, for process ids as this procfs shows them,
// and attaches those that follow processes. It attaches the others once, too, so that a
// kernel that refuses them is known at once.
func loadReplicaKernel(this *platform.Kernel, wire replicaWire, procfs string, tracing *collector.Tracing, dispatch *platform.Dispatcher) (*replicaKernel, error) {
	// Only kernels before 5.11 account BPF memory this way; there, a refusal shows in the load.
	_ = rlimit.RemoveMemlock()
	spec, err := wire.load()
	if err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	k := &replicaKernel{wire: wire, dispatch: dispatch, links: map[string]io.Closer{}}
	if k.otherNamespace, err = collector.SetNamespace(spec, procfs); err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	if err := sizeReplicaMaps(spec); err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	if k.hooks, err = wire.hooksFor(this); err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	unwanted := map[string]bool{}
	for _, h := range wire.hooks {
		unwanted[h.program] = true
	}
	for _, h := range k.hooks {
		unwanted[h.program] = false
	}
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool { return unwanted[name] })
	if err := this.AddBackups(spec); err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	if err := dispatch.Open(this); err != nil {
		return nil, fmt.Errorf("wire %s: %w", wire.name, err)
	}
	if k.collection, err = tracing.Load(spec, dispatch); err != nil {
		return nil, errors.Join(fmt.Errorf("wire %s: load: %w", wire.name, platform.Explain(err)), dispatch.Close())
	}
	k.groups = dispatch.ProgramGroups(dispatcher.DispatcherFollowerFOLLOWS_REPLICAS, spec, k.collection)
	if k.processEvents, err = ringbuf.NewReader(k.collection.Maps["process_events"]); err != nil {
		return nil, errors.Join(fmt.Errorf("wire %s: process_events: %w", wire.name, err), k.Close())
	}
	for _, need := range []replicaNeed{forLocal, always} {
		if err := k.listen(need); err != nil {
			return nil, errors.Join(err, k.Close())
		}
	}
	return k, nil
}

// listen attaches the programs that this need requires and detaches all others.
func (k *replicaKernel) listen(need replicaNeed) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for _, h := range k.hooks {
		wanted := h.need <= need
		l := k.links[h.program]
		switch {
		case wanted && l == nil:
			l, err := k.groups[h.program].Attach()
			if err != nil {
				errs = append(errs, fmt.Errorf("wire %s: attach %s to %s: %w", k.wire.name, h.program, k.groups[h.program].AttachTo(), platform.Explain(err)))
				continue
			}
			k.links[h.program] = l
		case !wanted && l != nil:
			errs = append(errs, l.Close())
			delete(k.links, h.program)
		}
	}
	return errors.Join(errs...)
}

// Close detaches and frees everything.
func (k *replicaKernel) Close() error {
	errs := []error{k.listen(-1)}
	if k.processEvents != nil {
		errs = append(errs, k.processEvents.Close())
	}
	k.collection.Close()
	return errors.Join(append(errs, k.dispatch.Close())...)
}

// processEvent waits for the next program start or end; it fails when the kernel side is closed.
func (k *replicaKernel) processEvent() (pid int, exited bool, err error) {
	record, err := k.processEvents.Read()
	if err != nil {
		return 0, false, err
	}
	if len(record.RawSample) < 8 {
		return 0, false, fmt.Errorf("wire %s: process event of %d bytes", k.wire.name, len(record.RawSample))
	}
	return int(binary.NativeEndian.Uint32(record.RawSample)), binary.NativeEndian.Uint32(record.RawSample[4:]) != 0, nil
}

// follow makes the programs follow a process's calls.
func (k *replicaKernel) follow(pid int, p bpf.Process) error {
	if err := k.collection.Maps["processes"].Put(uint32(pid), p); err != nil {
		return fmt.Errorf("follow process %d: %w", pid, err)
	}
	return k.dispatch.Follow(dispatcher.DispatcherFollowerFOLLOWS_REPLICAS, pid)
}

// unfollow undoes follow; the kernel has forgotten a process that ended by itself.
func (k *replicaKernel) unfollow(pid int) error {
	err := k.collection.Maps["processes"].Delete(uint32(pid))
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		err = nil
	}
	return errors.Join(err, k.dispatch.Unfollow(dispatcher.DispatcherFollowerFOLLOWS_REPLICAS, pid))
}

// setPeers passes to the programs how many replicas an engine is connected to. A process that has ended meanwhile must
// not come back into the map.
func (k *replicaKernel) setPeers(pid int, peers uint32) error {
	m := k.collection.Maps["processes"]
	var p bpf.Process
	err := m.Lookup(uint32(pid), &p)
	if err == nil {
		p.Peers = peers
		err = m.Update(uint32(pid), p, ebpf.UpdateExist)
	}
	if errors.Is(err, ebpf.ErrKeyNotExist) {
		return nil
	}
	return err
}

// events returns the programs' counters, summed over the CPUs.
func (k *replicaKernel) events() (sums [bpf.Events]uint64, err error) {
	err = collector.AddEvents(k.collection.Maps["events"], sums[:])
	return sums, err
}

// readReplicaMap returns a copy of a hash map. It reads by buckets, because a walk key by
// key goes astray while keys are being deleted.
func readReplicaMap[K comparable, V any](k *replicaKernel, name string) (map[K]V, error) {
	m, err := collector.ReadMap[K, V](k.collection.Maps[name])
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", name, err)
	}
	return m, nil
}

// deleteFrom removes a key and reports whether it was there.
func (k *replicaKernel) deleteFrom(name string, key any) (bool, error) {
	return collector.Remove(k.collection.Maps[name], key)
}

// peerAddress returns a peer's data address; invalid for a unix socket.
func peerAddress(key bpf.PeerKey) netip.AddrPort {
	const inet, inet6 = 2, 10
	switch key.Family {
	case inet:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(key.Address[:4])), key.Port)
	case inet6:
		return netip.AddrPortFrom(netip.AddrFrom16(key.Address).Unmap(), key.Port)
	}
	return netip.AddrPort{}
}
