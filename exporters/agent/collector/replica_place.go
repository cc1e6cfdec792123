package collector

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// replicaDisksHanging is how many looks at replicas' directories may hang at once; of one pod's, in which all of a node's replicas may be, an eighth.
const replicaDisksHanging = 2 * foreign.DefaultHanging

// placeOften finds the disks of replicas that came since. It waits for the replicas' file
// systems, which may hang, so it is alone with that.
func (f *replicaFollower) placeOften(ctx context.Context) {
	every(ctx, f.log, replicaScanInterval, f.unplaced, func() {
		f.mu.Lock()
		var todo []*followedProcess
		for _, n := range f.byPID {
			if n.Role == replica.Replica && !n.placed {
				todo = append(todo, n)
			}
		}
		f.mu.Unlock()
		waited := newOwnerWaits()
		for _, n := range todo {
			if ctx.Err() != nil {
				return
			}
			owner := pod.Owner(f.options.ProcFS, n.pid)
			if waited.enough(owner) {
				continue // at the next turn
			}
			began := time.Now()
			device, err := f.place(n, owner)
			waited.since(owner, began)
			if err != nil {
				f.chatter.Debug("disk of a replica", "pid", n.pid, "err", err)
				continue // not made yet, or it hangs: again at the next turn
			}
			f.mu.Lock()
			n.device, n.placed = device, true
			f.mu.Unlock()
		}
	})
}

// place names the disk that a replica's directory is on; empty if it is on none (overlay,
// network file systems). owner is whose the replica is.
func (f *replicaFollower) place(n *followedProcess, owner string) (string, error) {
	s, err := foreign.AskFor(f.disks, foreign.Owner{User: owner}, fmt.Sprintf("directory of process %d", n.pid), func() (unix.Stat_t, error) {
		root, err := foreign.Root(f.options.ProcFS, n.pid)
		if err != nil {
			return unix.Stat_t{}, err
		}
		defer root.Close()
		return root.Stat(n.Directory, foreign.InRoot)
	})
	if err != nil {
		return "", err
	}
	name, err := volume.NewDevices(f.options.ProcFS, f.options.SysFS).Of(volume.Mount{Point: n.Directory, Device: fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))})
	if err != nil {
		return "", nil
	}
	return name, nil
}
