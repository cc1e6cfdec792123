package fabric

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
)

// userTargetPrograms are those at the calls on sockets, by the way of watching these that they are for, and
// userTargetSockets the iterator. They have the same names in each wire's object.
var userTargetPrograms = map[platform.AttachMode][]string{
	platform.Tracepoints: {bpf.IscsiTargetProgUserTargetReceived, bpf.IscsiTargetProgUserTargetSent},
	platform.Functions: {
		bpf.IscsiTargetProgUserTargetInetReceived, bpf.IscsiTargetProgUserTargetInet6Received,
		bpf.IscsiTargetProgUserTargetInetSent, bpf.IscsiTargetProgUserTargetInet6Sent,
	},
}

const userTargetSockets = bpf.IscsiTargetProgUserTargetSockets

const (
	// userTargetMaxProcesses bounds the targets in user space that are followed, and userTargetShare those of one pod
	// or container (pod.Owner): an owner that names processes like a target must not take all the room.
	userTargetMaxProcesses = 1024
	userTargetShare        = userTargetMaxProcesses / 8
	// userTargetMaxSessions bounds the connections with targets in user space: of NVMe each queue is one.
	userTargetMaxSessions = 8192
)

// userTargetMapSizes are the entries of the maps of a side of targets in user space. All but the operations grow as
// they are used: a session takes 1.3 KB.
var userTargetMapSizes = map[string]uint32{
	"user_targets": userTargetMaxProcesses, "sessions": userTargetMaxSessions, "older": 64 << 10,
	"exports": userTargetMaxSessions, "unanswered": userTargetMaxSessions, "latencies": 3 * userTargetMaxSessions, // read, write, sync: as they are used
}

// userTargetKernel is the kernel side of targets in user space.
type userTargetKernel struct {
	*fabricKernel
	// otherNamespace is set if procfs shows another PID namespace than the agent's own.
	otherNamespace bool
	follower       platform.Follower
}

// loadUserTarget loads the programs for how this kernel's sockets are watched, and attaches nothing.
func loadUserTarget(o collector.Options, wire *fabricUserTarget) (*userTargetKernel, error) {
	this, err := platform.Find(o.AttachMode)
	if err != nil {
		return nil, err
	}
	_ = rlimit.RemoveMemlock() // before Linux 5.11; a refusal shows in the load
	spec, err := wire.load()
	if err != nil {
		return nil, err
	}
	k, wanted := &userTargetKernel{follower: wire.follower}, userTargetPrograms[this.AttachMode]
	maps.DeleteFunc(spec.Programs, func(name string, _ *ebpf.ProgramSpec) bool {
		return name != userTargetSockets && !slices.Contains(wanted, name)
	})
	sizes := maps.Clone(mapSizes)
	maps.Copy(sizes, userTargetMapSizes)
	sizeFabricMaps(this, spec, sizes)
	if k.otherNamespace, err = collector.SetNamespace(spec, o.ProcFS); err != nil {
		return nil, err
	}
	if err := this.AddBackups(spec); err != nil {
		return nil, err
	}
	dispatch := o.SharedDispatcher()
	if err := dispatch.Open(this); err != nil {
		return nil, err
	}
	collection, err := dispatch.Load(spec, nil)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("load: %w", platform.Explain(err)), dispatch.Close())
	}
	k.fabricKernel = newKernel(collection)
	k.sizes, k.dispatch = sizes, dispatch
	groups := dispatch.ProgramGroups(k.follower, spec, collection)
	k.programs = collector.ProgramsOf(groups)
	for name, group := range groups {
		if name != userTargetSockets {
			k.hooks = append(k.hooks, fabricHook{name, group.AttachTo(), group.Attach})
		}
	}
	return k, nil
}

// follow makes the programs read the calls of a process that began at start, in clock ticks. Connections that it has
// already may have had their login.
func (k *userTargetKernel) follow(pid int, start uint64) (followed bool, err error) {
	err = k.collection.Maps["user_targets"].Put(uint32(pid), start)
	if err == nil {
		err = k.dispatch.Follow(k.follower, pid)
	}
	if err != nil {
		return false, fmt.Errorf("follow process %d: %w", pid, err)
	}
	sockets, err := k.sockets([]int{pid})
	for _, s := range sockets {
		err = errors.Join(err, k.collection.Maps["older"].Put(s.Inode, uint8(1)))
	}
	if err != nil {
		// New connections are followed all the same.
		return true, fmt.Errorf("sockets of process %d: %w", pid, err)
	}
	return true, nil
}

func (k *userTargetKernel) sockets(pids []int) ([]bpf.UserTargetSocket, error) {
	return collector.SocketsOf[bpf.UserTargetSocket](k.collection.Programs[userTargetSockets], pids, k.otherNamespace)
}

// unfollow undoes follow.
func (k *userTargetKernel) unfollow(pid int) error {
	_, err := collector.Remove(k.collection.Maps["user_targets"], uint32(pid))
	return errors.Join(err, k.dispatch.Unfollow(k.follower, pid))
}

// sample reads what there is, for processes that are followed.
func (k *userTargetKernel) sample(followed map[int]uint64) (l userTargetSample) {
	var errs [5]error
	l.operations, errs[0] = collector.ReadMap[uint64, bpf.Operation](k.collection.Maps["operations"])
	l.exports, errs[1] = collector.ReadMap[bpf.ExportKey, bpf.Export](k.collection.Maps["exports"])
	l.sessions, errs[2] = collector.ReadMap[uint64, bpf.Session](k.collection.Maps["sessions"])
	l.older, errs[3] = collector.ReadMap[uint64, uint8](k.collection.Maps["older"])
	pids := make([]int, 0, len(followed))
	for pid := range followed {
		pids = append(pids, pid)
	}
	sockets, err := k.sockets(pids)
	errs[4] = err
	l.open = map[uint64]bool{}
	for _, s := range sockets {
		l.open[s.Inode] = true
	}
	l.err = errors.Join(errs[:]...)
	return l
}
