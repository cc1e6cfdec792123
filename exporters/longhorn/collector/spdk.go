package collector

import (
	"context"
	"errors"
	"sort"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/longhorn/types/pkg/generated/imrpc"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// spdkPort is where an instance manager for the V2 data engine serves SPDK.
const spdkPort = "8504"

// spdkMetricsGet came to the service after the version of the generated client we build
// with; its messages have the same fields as the two used here.
const spdkMetricsGet = "/spdkrpc.SPDKService/MetricsGet"

// spdkEngine queries a V2 engine through the SPDK service of its node.
type spdkEngine struct {
	conn   *grpc.ClientConn
	client spdkrpc.SPDKServiceClient
	proxy  imrpc.ProxyEngineServiceClient
	target Target
	free   []func()
}

func newSPDKEngine(t Target, d *dialer) (engineAPI, error) {
	if t.Manager == "" {
		return nil, errors.New("a V2 engine can only be queried through its instance manager")
	}
	spdk, freeSPDK, err := d.get(managerAddress(t.Manager, spdkPort))
	if err != nil {
		return nil, err
	}
	proxy, freeProxy, err := d.get(managerAddress(t.Manager, proxyPort))
	if err != nil {
		freeSPDK()
		return nil, err
	}
	return &spdkEngine{spdk, spdkrpc.NewSPDKServiceClient(spdk), imrpc.NewProxyEngineServiceClient(proxy), t, []func(){freeSPDK, freeProxy}}, nil
}

// bdevMetrics queries the rates of one SPDK block device.
func (e *spdkEngine) bdevMetrics(ctx context.Context, bdev string) (*enginerpc.Metrics, error) {
	reply := &enginerpc.Metrics{}
	return reply, e.conn.Invoke(ctx, spdkMetricsGet, &spdkrpc.EngineGetRequest{Name: bdev}, reply)
}

// metrics queries the engine's own device, which is named after it.
func (e *spdkEngine) metrics(ctx context.Context) (*enginerpc.Metrics, error) {
	return e.bdevMetrics(ctx, e.target.EngineName)
}

func (e *spdkEngine) replicas(ctx context.Context) ([]*enginerpc.ControllerReplica, error) {
	engine, err := e.client.EngineGet(ctx, &spdkrpc.EngineGetRequest{Name: e.target.EngineName})
	if err != nil {
		return nil, err
	}
	list := []*enginerpc.ControllerReplica{}
	for name, mode := range engine.ReplicaModeMap {
		list = append(list, &enginerpc.ControllerReplica{
			Address: &enginerpc.ReplicaAddress{Address: engine.ReplicaAddressMap[name], InstanceName: name},
			// The two enums have the same numbers.
			Mode: enginerpc.ReplicaMode(mode),
		})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Address.InstanceName < list[j].Address.InstanceName })
	return list, nil
}

func (e *spdkEngine) volume(ctx context.Context) (*enginerpc.Volume, error) {
	engine, err := e.client.EngineGet(ctx, &spdkrpc.EngineGetRequest{Name: e.target.EngineName})
	if err != nil {
		return nil, err
	}
	// A size that is no int64 becomes negative, which is refused as any other that cannot be.
	return &enginerpc.Volume{Name: engine.VolumeName, Size: int64(engine.SpecSize)}, nil
}

func (e *spdkEngine) close() {
	for _, free := range e.free {
		free()
	}
}

// pollSPDK queries everything about a V2 replica; its engine's service knows it all.
func (r *replica) pollSPDK(ctx context.Context, e *spdkEngine) {
	call, cancel := context.WithTimeout(ctx, r.volume.opts.Poll.Timeout)
	defer cancel()
	r.mu.Lock()
	now := replicaState{sampled: r.seen.sampled} // counters outlive a poll that fails
	r.mu.Unlock()
	errs := map[string]error{"get": nil, "disks": nil, "rebuild": nil, "metrics": nil}
	list, err := e.client.EngineReplicaList(call, &spdkrpc.EngineReplicaListRequest{EngineName: e.target.EngineName})
	switch state := list.GetReplicas()[r.name]; {
	case err != nil:
		errs["get"] = err
	case state == nil:
		errs["get"] = badAnswer("EngineReplicaList answers without the replica")
	default:
		now.up, now.state, now.rebuilding = state.State == "running", label.Value(state.State), state.Rebuilding
		now.disks, errs["disks"] = lvolsOf(state)
		errs["rebuild"] = r.rebuildSPDK(call, e, &now)
		now.sampled, errs["metrics"] = sampleSPDK(call, e, r.name, now.sampled)
	}
	if ctx.Err() != nil {
		return
	}
	r.store(now, errs)
}

// lvolsOf reads the sizes of a replica's logical volumes.
func lvolsOf(state *spdkrpc.Replica) (*disks, error) {
	head := state.GetHead().GetActualSize()
	if head > maxSize {
		return nil, badAnswer("a head of %d bytes", head)
	}
	d := &disks{head: float64(head)}
	for _, lvol := range state.Snapshots {
		if err := d.add(lvol.GetActualSize()); err != nil {
			return nil, err
		}
	}
	return d, nil
}

// rebuildSPDK queries the proxy for the rebuild under way; it lists write-only replicas only.
func (r *replica) rebuildSPDK(ctx context.Context, e *spdkEngine, now *replicaState) error {
	reply, err := e.proxy.ReplicaRebuildingStatus(ctx, proxyRequest(e.target))
	if err != nil {
		return err
	}
	for address, status := range reply.Status {
		if bareAddress(address) == r.address {
			return now.setRebuild(status)
		}
	}
	return now.setRebuild(&enginerpc.ReplicaRebuildStatusResponse{})
}

// sampleSPDK integrates the rates of the NVMe device through which the engine reaches the
// replica: SPDK names it after the controller, which is named after the replica, and the
// name space's number. A replica on the engine's own node has none.
func sampleSPDK(ctx context.Context, e *spdkEngine, replica string, before *sampled) (*sampled, error) {
	m, err := e.bdevMetrics(ctx, replica+"n1")
	if status.Code(err) == codes.NotFound {
		return before, nil
	}
	if err == nil {
		err = checkMetrics(m)
	}
	if err != nil {
		return before, err
	}
	next := &sampled{}
	if before != nil {
		*next = *before
	}
	next.addRates(m, time.Now())
	return next, nil
}
