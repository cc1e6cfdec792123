package collector

import (
	"context"
	"net"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/longhorn/types/pkg/generated/imrpc"
)

// proxyPort is where an instance manager's proxy listens.
const proxyPort = "8501"

// proxiedEngine queries a V1 engine through the proxy of its instance manager, as Longhorn's own manager does.
type proxiedEngine struct {
	client imrpc.ProxyEngineServiceClient
	engine *imrpc.ProxyEngineRequest
	free   func()
}

func newProxiedEngine(t Target, d *dialer) (engineAPI, error) {
	conn, free, err := d.get(managerAddress(t.Manager, proxyPort))
	if err != nil {
		return nil, err
	}
	return &proxiedEngine{imrpc.NewProxyEngineServiceClient(conn), proxyRequest(t), free}, nil
}

// managerAddress adds the usual port to an instance manager's address if it has none.
func managerAddress(manager, port string) string {
	if _, _, err := net.SplitHostPort(manager); err == nil {
		return manager
	}
	return net.JoinHostPort(manager, port)
}

func proxyRequest(t Target) *imrpc.ProxyEngineRequest {
	r := &imrpc.ProxyEngineRequest{Address: t.Engine, EngineName: t.EngineName, VolumeName: t.Volume}
	if t.Backend == BackendV2 {
		r.DataEngine = imrpc.DataEngine_DATA_ENGINE_V2
	}
	return r
}

func (e *proxiedEngine) metrics(ctx context.Context) (*enginerpc.Metrics, error) {
	reply, err := e.client.MetricsGet(ctx, e.engine)
	if err != nil {
		return nil, err
	}
	if reply.Metrics == nil {
		return nil, badAnswer("MetricsGet answers without metrics")
	}
	return reply.Metrics, nil
}

func (e *proxiedEngine) replicas(ctx context.Context) ([]*enginerpc.ControllerReplica, error) {
	reply, err := e.client.ReplicaList(ctx, e.engine)
	if err != nil {
		return nil, err
	}
	if reply.ReplicaList == nil {
		return nil, badAnswer("ReplicaList answers without a list")
	}
	return reply.ReplicaList.Replicas, nil
}

func (e *proxiedEngine) volume(ctx context.Context) (*enginerpc.Volume, error) {
	reply, err := e.client.VolumeGet(ctx, e.engine)
	if err != nil {
		return nil, err
	}
	if reply.Volume == nil {
		return nil, badAnswer("VolumeGet answers without a volume")
	}
	return reply.Volume, nil
}

func (e *proxiedEngine) close() { e.free() }
