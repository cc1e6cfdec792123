package collector

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// replica polls one replica process and its sync agent.
type replica struct {
	volume        *volume
	name, address string
	cancel        context.CancelFunc
	polled        chan struct{}

	mu    sync.Mutex
	known bool // whether it was queried at all
	seen  replicaState
}

// replicaState is the replica's last answer; the zero value means that it did not answer.
type replicaState struct {
	up         bool
	state      string
	rebuilding bool
	revision   *int64                                  // nil: disabled or unknown
	disks      *disks                                  // nil: unknown
	rebuild    *enginerpc.ReplicaRebuildStatusResponse // nil: unknown
	sampled    *sampled                                // nil: not measured
}

// startReplica polls a replica. If former polled the same one, its first poll continues from the last results of
// former.
func startReplica(parent context.Context, v *volume, name, address string, api engineAPI, former *replica) *replica {
	ctx, cancel := context.WithCancel(parent)
	r := &replica{volume: v, name: name, address: address, cancel: cancel, polled: make(chan struct{})}
	if former != nil && former.name == name {
		former.mu.Lock()
		r.known, r.seen = former.known, former.seen
		former.mu.Unlock()
	}
	var first sync.WaitGroup
	first.Add(1)
	go func() {
		first.Wait()
		close(r.polled)
	}()
	if spdk, ok := api.(*spdkEngine); ok {
		v.done.Go(func() {
			v.every(ctx, v.opts.Poll.StateInterval, &first, func() { r.pollSPDK(ctx, spdk) })
		})
		return r
	}
	v.done.Go(func() { r.run(ctx, &first) })
	return r
}

func (r *replica) run(ctx context.Context, first *sync.WaitGroup) {
	call := r.volume.controlOf(r.address)
	control, agent, err := dialReplica(call, r.volume.target.Volume)
	if err != nil {
		r.store(replicaState{}, map[string]error{"connect": err})
		first.Done()
		return
	}
	defer control.Close()
	defer agent.Close()
	r.volume.every(ctx, r.volume.opts.Poll.StateInterval, first, func() {
		r.poll(ctx, enginerpc.NewReplicaServiceClient(control), enginerpc.NewSyncAgentServiceClient(agent))
	})
}

// dialReplica connects to a replica and its sync agent. They get no instance name: the lab
// and older managers start replicas without one.
func dialReplica(address, volume string) (control, agent *grpc.ClientConn, err error) {
	syncAgent, err := syncAddress(address)
	if err != nil {
		return nil, nil, err
	}
	control, err = dial(address, insecure.NewCredentials(), volume, "")
	if err != nil {
		return nil, nil, err
	}
	agent, err = dial(syncAgent, insecure.NewCredentials(), volume, "")
	if err != nil {
		control.Close()
		return nil, nil, err
	}
	return control, agent, nil
}

func (r *replica) poll(ctx context.Context, control enginerpc.ReplicaServiceClient, agent enginerpc.SyncAgentServiceClient) {
	call, cancel := context.WithTimeout(ctx, r.volume.opts.Poll.Timeout)
	defer cancel()
	var got *enginerpc.ReplicaGetResponse
	var rebuild *enginerpc.ReplicaRebuildStatusResponse
	var getErr, rebuildErr error
	var both sync.WaitGroup
	both.Go(func() {
		getErr = exporterkit.Recovered(func() (err error) { got, err = control.ReplicaGet(call, &emptypb.Empty{}); return err })
	})
	both.Go(func() {
		rebuildErr = exporterkit.Recovered(func() (err error) { rebuild, err = agent.ReplicaRebuildStatus(call, &emptypb.Empty{}); return err })
	})
	both.Wait()
	if ctx.Err() != nil {
		return
	}
	if getErr == nil && got.Replica == nil {
		getErr = badAnswer("ReplicaGet answers without a replica")
	}
	var now replicaState
	var filesErr error
	if getErr == nil {
		state := got.Replica
		now = replicaState{up: true, state: label.Value(state.State), rebuilding: state.Rebuilding}
		now.disks, filesErr = disksOf(state)
		// A negative count is impossible; the files' check reports what else is wrong with such an answer.
		if !state.RevisionCounterDisabled && len(state.Chain) > 0 && state.RevisionCounter >= 0 {
			now.revision = &state.RevisionCounter
		} else if state.RevisionCounter < 0 {
			filesErr = errors.Join(filesErr, badAnswer("revision %d", state.RevisionCounter))
		}
		if rebuildErr == nil {
			rebuildErr = now.setRebuild(rebuild)
		}
	}
	r.store(now, map[string]error{"get": getErr, "rebuild": rebuildErr, "disks": filesErr})
}

// store keeps the results of a poll and counts what failed, by call.
func (r *replica) store(now replicaState, errs map[string]error) {
	r.volume.mu.Lock()
	for call, err := range errs {
		r.volume.result("replica "+r.name, call, err)
	}
	r.volume.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known, r.seen = true, now
}

// setRebuild takes a rebuild's status if it can be true.
func (s *replicaState) setRebuild(status *enginerpc.ReplicaRebuildStatusResponse) error {
	if status == nil {
		return badAnswer("no status of a rebuild")
	}
	if status.Progress < 0 || status.Progress > 100 {
		return badAnswer("rebuild progress of %d %%", status.Progress)
	}
	s.rebuild = status
	s.rebuilding = s.rebuilding || status.IsRebuilding
	return nil
}

// rebuildDone is the share of a rebuild that is done. The percentage is cut down to an integer of a sum of rounded
// sizes and often ends below 100; the state is then correct (longhorn-engine pkg/sync/rpc/server.go).
func rebuildDone(status *enginerpc.ReplicaRebuildStatusResponse) float64 {
	if status.State == "complete" {
		return 1
	}
	return float64(status.Progress) / 100
}

// disks is what a replica's files take on its disk.
type disks struct {
	head          float64
	snapshots     int
	snapshotBytes float64
}

// add counts a snapshot.
func (d *disks) add(bytes uint64) error {
	if d.snapshots++; d.snapshots > maxSnapshots {
		return badAnswer("more than %d snapshots", maxSnapshots)
	}
	if bytes > maxSize {
		return badAnswer("a snapshot of %d bytes", bytes)
	}
	d.snapshotBytes += float64(bytes)
	return nil
}

// disksOf reads the sizes of a replica's files; nil if it shows none, as a replica does
// that no engine has opened.
func disksOf(state *enginerpc.Replica) (*disks, error) {
	if len(state.Chain) == 0 {
		return nil, nil
	}
	if state.HeadFileSize < 0 || state.HeadFileSize > maxSize {
		return nil, badAnswer("a head of %d bytes", state.HeadFileSize)
	}
	d := &disks{head: float64(state.HeadFileSize)}
	for name, disk := range state.Disks {
		if name == state.Head {
			continue
		}
		size, err := strconv.ParseUint(disk.GetSize(), 10, 64)
		if err != nil {
			return nil, badAnswer("snapshot %s has the size %q", label.Value(name), label.Value(disk.GetSize()))
		}
		if err := d.add(size); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// syncAddress is where a replica's sync agent listens: two ports above the replica.
func syncAddress(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", err
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n > 65533 {
		return "", fmt.Errorf("%q: no port that leaves room for the sync agent's two above it", address)
	}
	return net.JoinHostPort(host, strconv.FormatUint(n+2, 10)), nil
}
