package replica

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

const (
	// disksHanging is how many calls on replicas' directories may hang at once; of one disk's in one pod an
	// eighth, of one disk's a quarter, and of one pod's, in which all of a node's replicas may be, half.
	disksHanging = 2 * untrusted.DefaultHanging
	// podTimeout is for how long one pod's disks may make others wait in a round, each of them for ownerTimeout.
	podTimeout = 4 * ownerTimeout
)

// placeOften finds the disks of replicas that came since. It waits for the replicas' file
// systems, which may hang, so it is alone with that.
func (f *replicaFollower) placeOften(ctx context.Context) {
	collector.Every(ctx, f.log, scanInterval, f.unplaced, func() {
		f.mu.Lock()
		var todo []*followedProcess
		for _, n := range f.byPID {
			if n.Role == bpf.Replica && !n.placed {
				todo = append(todo, n)
			}
		}
		f.mu.Unlock()
		ofPod, ofDisk := newOwnerWaits(podTimeout), newOwnerWaits(ownerTimeout)
		for _, n := range todo {
			if ctx.Err() != nil {
				return
			}
			began := time.Now()
			owner := f.ownerOf(n)
			disk := owner.User + "\n" + owner.Group
			if ofPod.enough(owner.User) || ofDisk.enough(disk) {
				continue // at the next turn
			}
			device, err := f.place(n, owner)
			ofPod.since(owner.User, began)
			ofDisk.since(disk, began)
			if err != nil {
				f.limitedLog.Debug("disk of a replica", "pid", n.pid, "err", err)
				continue // not made yet, or it hangs: again at the next turn
			}
			if device == "" {
				f.limitedLog.Debug("a replica's directory is on no block device that is known", "pid", n.pid, "directory", untrusted.Path(n.Directory))
			}
			f.mu.Lock()
			n.device, n.placed = device, true
			f.mu.Unlock()
		}
	})
}

func (f *replicaFollower) placedReplicas() (all []collector.PlacedReplica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.byPID {
		if n.Role == bpf.Replica && n.device != "" {
			r := collector.PlacedReplica{Pid: n.pid, Start: n.start, Name: n.Instance, Volume: n.volume, Device: n.device}
			all = append(all, r)
			if n.agent != 0 {
				r.Pid, r.Start = n.agent, n.agentStart
				all = append(all, r)
			}
		}
	}
	return all
}

// ownerOf is whose share the calls on a replica's directory take: its pod's and, as the group, the file system's that
// the replica's mount table has there. The table is the kernel's, and does not hang with that; where it has nothing the
// share is the pod's alone.
func (f *replicaFollower) ownerOf(n *followedProcess) untrusted.Owner {
	owner := untrusted.Owner{User: pod.Owner(f.options.ProcFS, n.pid)}
	place, err := untrusted.Call(f.disks, owner, fmt.Sprintf("mount table of process %d", n.pid), func() (volume.Place, error) {
		return volume.PlaceOf(f.options.ProcFS, n.pid, n.Directory)
	})
	if err == nil {
		owner.Group = "disk " + place.Device
	}
	return owner
}

// place names the disk that a replica's directory is on; empty if it is on none (overlay,
// network file systems). owner is whose the replica is.
func (f *replicaFollower) place(n *followedProcess, owner untrusted.Owner) (string, error) {
	m, err := untrusted.Call(f.disks, owner, fmt.Sprintf("directory of process %d", n.pid), func() (volume.Mount, error) {
		root, err := untrusted.Root(f.options.ProcFS, n.pid)
		if err != nil {
			return volume.Mount{}, err
		}
		defer root.Close()
		file, err := root.File(n.Directory, untrusted.InRoot)
		if err != nil {
			return volume.Mount{}, err
		}
		m, err := volume.MountOf(f.options.ProcFS, n.pid, file.Mount)
		if err != nil { // what the file system calls its device is enough nearly everywhere
			m = volume.Mount{Point: n.Directory, Device: fmt.Sprintf("%d:%d", unix.Major(file.Dev), unix.Minor(file.Dev))}
		}
		return m, nil
	})
	if err != nil {
		return "", err
	}
	name, err := volume.NewDevices(f.options.ProcFS, f.options.SysFS).Of(m)
	if err != nil {
		return "", nil
	}
	return name, nil
}
