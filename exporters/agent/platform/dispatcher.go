package platform

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/plumbline/plumbline/exporters/agent/bpf/dispatcher"
)

// Follower is a collector whose programs follow calls on sockets: enum follower of bpf/followed.h.
type Follower = dispatcher.DispatcherFollower

const followers = uint32(dispatcher.DispatcherFollowerFOLLOWERS)

// programsAt are the maps with the collectors' programs, by the tracepoint at which the calls are passed on to them.
var programsAt = map[string]string{"sock_recv_length": dispatcher.DispatcherMapReceivedBy, "sock_send_length": dispatcher.DispatcherMapSentBy}

// Dispatcher are the programs at the ends of calls on sockets, which pass each call on to the programs of those collectors
// that follow the calling process: bpf/followed.h. All collectors of an agent share them. Where the kernel has no
// tracepoints for them (Functions), there are none, and only the map of the followed processes is shared.
type Dispatcher struct {
	// Namespace is the PID namespace of the processes' ids; 0 is the machine's own.
	Namespace uint32

	mu         sync.Mutex
	opened     int
	collection *ebpf.Collection
	groups     map[string]*ProgramGroup // by tracepoint
	links      map[string]io.Closer
	joined     map[string]int // programs, by tracepoint
	// processes counts those behind each bit: the byte's number * 8 + Follower.
	processes map[uint32]int
	words     map[uint32]uint64
}

// Open loads what is shared, for the first that calls it. Each call needs a Close.
func (d *Dispatcher) Open(k *Kernel) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened++; d.opened > 1 {
		return nil
	}
	if err := d.load(k); err != nil {
		d.opened--
		return fmt.Errorf("sockets: %w", Explain(err))
	}
	return nil
}

func (d *Dispatcher) load(k *Kernel) error {
	_ = rlimit.RemoveMemlock() // before Linux 5.11; a refusal shows in the load
	spec, err := dispatcher.LoadDispatcher()
	if err != nil {
		return err
	}
	if err := spec.Variables["pid_namespace"].Set(d.Namespace); err != nil {
		return err
	}
	if k.AttachMode == Functions {
		clear(spec.Programs)
	}
	if err := k.AddBackups(spec); err != nil {
		return err
	}
	if d.collection, err = ebpf.NewCollection(spec); err != nil {
		return err
	}
	d.groups, d.links, d.joined = map[string]*ProgramGroup{}, map[string]io.Closer{}, map[string]int{}
	for _, c := range ProgramGroups(spec, d.collection) {
		d.groups[c.AttachTo()] = c
	}
	d.processes, d.words = map[uint32]int{}, map[uint32]uint64{}
	return nil
}

// Close undoes an Open; the last one unloads everything.
func (d *Dispatcher) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.opened--; d.opened > 0 {
		return nil
	}
	var problems []error
	for _, l := range d.links {
		problems = append(problems, l.Close())
	}
	d.links, d.groups = nil, nil
	d.collection.Close()
	return errors.Join(problems...)
}

// Load loads a collector's programs with the maps that all collectors share, and with more of such.
func (d *Dispatcher) Load(spec *ebpf.CollectionSpec, more map[string]*ebpf.Map) (*ebpf.Collection, error) {
	shared := maps.Clone(more)
	if shared == nil {
		shared = map[string]*ebpf.Map{}
	}
	for _, name := range []string{dispatcher.DispatcherMapFollowed, dispatcher.DispatcherMapReceivedBy, dispatcher.DispatcherMapSentBy, dispatcher.DispatcherMapSocketGroups} {
		if spec.Maps[name] != nil {
			shared[name] = d.collection.Maps[name]
		}
	}
	return ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{MapReplacements: shared})
}

// ProgramGroups are those of a collector's programs, as ProgramGroups returns them; calls on sockets are passed on to
// them.
func (d *Dispatcher) ProgramGroups(f Follower, spec *ebpf.CollectionSpec, loaded *ebpf.Collection) map[string]*ProgramGroup {
	groups := ProgramGroups(spec, loaded)
	for _, c := range groups {
		if programsAt[c.AttachTo()] != "" && d.groups[c.AttachTo()] != nil {
			c.dispatcher, c.follower = d, f
		}
	}
	return groups
}

// join has calls passed on to a collector's program, and to those of its backup programs that are there.
func (d *Dispatcher) join(c *ProgramGroup, there func(rank int) bool) (io.Closer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at := c.AttachTo()
	leave := func() error {
		var problems []error
		for rank := range c.programs {
			err := d.collection.Maps[programsAt[at]].Delete(uint32(rank)*followers + uint32(c.follower))
			if !errors.Is(err, ebpf.ErrKeyNotExist) {
				problems = append(problems, err)
			}
		}
		return errors.Join(problems...)
	}
	for rank, program := range c.programs {
		if !there(rank) {
			continue
		}
		if err := d.collection.Maps[programsAt[at]].Put(uint32(rank)*followers+uint32(c.follower), program); err != nil {
			return nil, errors.Join(fmt.Errorf("passing on calls: %w", err), leave())
		}
	}
	if d.joined[at] == 0 {
		l, err := d.groups[at].Attach()
		if err != nil {
			return nil, errors.Join(err, leave())
		}
		d.links[at] = l
	}
	d.joined[at]++
	return closing(sync.OnceValue(func() error {
		d.mu.Lock()
		defer d.mu.Unlock()
		err := leave()
		if d.joined[at]--; d.joined[at] == 0 {
			err = errors.Join(err, d.links[at].Close())
			delete(d.links, at)
		}
		return err
	})), nil
}

// closing is a function as an io.Closer.
type closing func() error

// Close implements io.Closer.
func (c closing) Close() error { return c() }

// Follow has the calls of a process passed on to a collector; Unfollow undoes it.
func (d *Dispatcher) Follow(f Follower, pid int) error { return d.count(f, pid, 1) }

// Unfollow undoes Follow.
func (d *Dispatcher) Unfollow(f Follower, pid int) error { return d.count(f, pid, -1) }

func (d *Dispatcher) count(f Follower, pid, by int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	bit := uint32(uint16(pid))*8 + uint32(f)
	word := bit / 64
	if d.processes[bit] += by; d.processes[bit] > 0 {
		d.words[word] |= 1 << (bit % 64)
	} else {
		delete(d.processes, bit)
		d.words[word] &^= 1 << (bit % 64)
	}
	// Before the first bit: nobody reads the map until then.
	err := d.collection.Variables[dispatcher.DispatcherVarFollowedBits].Set(uint32(len(d.processes)))
	return errors.Join(err, d.collection.Maps[dispatcher.DispatcherMapFollowed].Put(word, d.words[word]))
}

// Programs are the loaded ones, by what they are called in metrics.
func (d *Dispatcher) Programs() map[string]*ProgramGroup {
	d.mu.Lock()
	defer d.mu.Unlock()
	programs := map[string]*ProgramGroup{}
	for _, c := range d.groups {
		programs[c.spec.Name] = c
	}
	return programs
}
