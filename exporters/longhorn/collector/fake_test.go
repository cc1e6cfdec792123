package collector

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/longhorn/types/pkg/generated/imrpc"
	"github.com/longhorn/types/pkg/generated/spdkrpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// fakeLonghorn is not Longhorn: it answers the calls of engines, replicas, sync agents, instance managers and the SPDK
// service with what a test puts in, also with what no real one would return.
type fakeLonghorn struct {
	address string

	mu       sync.Mutex
	metrics  *enginerpc.Metrics
	replicas []*enginerpc.ControllerReplica
	volume   *enginerpc.Volume
	replica  *enginerpc.Replica
	rebuild  *enginerpc.ReplicaRebuildStatusResponse
	rebuilds map[string]*enginerpc.ReplicaRebuildStatusResponse
	engine   *spdkrpc.Engine
	lvols    map[string]*spdkrpc.Replica
	bdevs    map[string]*enginerpc.Metrics
	forward  bool // the proxy queries the engine named in the request, as the real one does
	calls    int
}

func startFake(t testing.TB, config *tls.Config) *fakeLonghorn {
	t.Helper()
	f := &fakeLonghorn{}
	creds := insecure.NewCredentials()
	if config != nil {
		creds = credentials.NewTLS(config)
	}
	server := grpc.NewServer(grpc.Creds(creds), grpc.UnknownServiceHandler(f.spdkMetrics))
	enginerpc.RegisterControllerServiceServer(server, fakeController{fake: f})
	enginerpc.RegisterSyncAgentServiceServer(server, fakeSyncAgent{fake: f})
	enginerpc.RegisterReplicaServiceServer(server, fakeReplica{fake: f})
	imrpc.RegisterProxyEngineServiceServer(server, fakeProxy{fake: f})
	spdkrpc.RegisterSPDKServiceServer(server, fakeSPDK{fake: f})
	// The sync agent is called two ports above the replica.
	var first, second net.Listener
	for {
		var err error
		if first, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
		address, err := syncAddress(first.Addr().String())
		if err == nil {
			second, err = net.Listen("tcp", address)
		}
		if err == nil {
			break
		}
		first.Close()
	}
	f.address = first.Addr().String()
	go server.Serve(first)
	go server.Serve(second)
	t.Cleanup(server.Stop)
	return f
}

// set changes what the fake answers.
func (f *fakeLonghorn) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// The services share names of calls, so each has a type of its own.
type (
	fakeController struct {
		enginerpc.UnimplementedControllerServiceServer
		fake *fakeLonghorn
	}
	fakeSyncAgent struct {
		enginerpc.UnimplementedSyncAgentServiceServer
		fake *fakeLonghorn
	}
	fakeReplica struct {
		enginerpc.UnimplementedReplicaServiceServer
		fake *fakeLonghorn
	}
	fakeProxy struct {
		imrpc.UnimplementedProxyEngineServiceServer
		fake *fakeLonghorn
	}
	fakeSPDK struct {
		spdkrpc.UnimplementedSPDKServiceServer
		fake *fakeLonghorn
	}
)

func (c fakeController) MetricsGet(context.Context, *emptypb.Empty) (*enginerpc.MetricsGetReply, error) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	return &enginerpc.MetricsGetReply{Metrics: c.fake.metrics}, nil
}

func (c fakeController) ReplicaList(context.Context, *emptypb.Empty) (*enginerpc.ReplicaListReply, error) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	return &enginerpc.ReplicaListReply{Replicas: c.fake.replicas}, nil
}

func (c fakeController) VolumeGet(context.Context, *emptypb.Empty) (*enginerpc.Volume, error) {
	c.fake.mu.Lock()
	defer c.fake.mu.Unlock()
	return c.fake.volume, nil
}

func (a fakeSyncAgent) ReplicaRebuildStatus(context.Context, *emptypb.Empty) (*enginerpc.ReplicaRebuildStatusResponse, error) {
	a.fake.mu.Lock()
	defer a.fake.mu.Unlock()
	return a.fake.rebuild, nil
}

// spdkMetrics answers the one call that the generated SPDK service does not have yet.
func (f *fakeLonghorn) spdkMetrics(_ any, stream grpc.ServerStream) error {
	if method, _ := grpc.MethodFromServerStream(stream); method != spdkMetricsGet {
		return status.Error(codes.Unimplemented, method)
	}
	var request spdkrpc.EngineGetRequest
	if err := stream.RecvMsg(&request); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.bdevs[request.Name] == nil {
		return status.Errorf(codes.NotFound, "cannot find engine metrics: %s", request.Name)
	}
	return stream.SendMsg(f.bdevs[request.Name])
}

func (r fakeReplica) ReplicaGet(context.Context, *emptypb.Empty) (*enginerpc.ReplicaGetResponse, error) {
	r.fake.mu.Lock()
	defer r.fake.mu.Unlock()
	return &enginerpc.ReplicaGetResponse{Replica: r.fake.replica}, nil
}

// engine is a client of the engine in the request, or of the fake itself.
func (p fakeProxy) engine(r *imrpc.ProxyEngineRequest) (engineCalls, func() error, error) {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	p.fake.calls++
	if !p.fake.forward {
		return engineCalls{fakeController{fake: p.fake}, nil}, func() error { return nil }, nil
	}
	conn, err := dial(r.Address, insecure.NewCredentials(), r.VolumeName, r.EngineName)
	if err != nil {
		return engineCalls{}, nil, err
	}
	return engineCalls{nil, enginerpc.NewControllerServiceClient(conn)}, conn.Close, nil
}

// engineCalls is a fake engine or the client of a real one.
type engineCalls struct {
	fake enginerpc.ControllerServiceServer
	real enginerpc.ControllerServiceClient
}

func (p fakeProxy) MetricsGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineMetricsGetProxyResponse, error) {
	e, done, err := p.engine(r)
	if err != nil {
		return nil, err
	}
	defer done()
	var reply *enginerpc.MetricsGetReply
	if e.fake != nil {
		reply, err = e.fake.MetricsGet(ctx, &emptypb.Empty{})
	} else {
		reply, err = e.real.MetricsGet(ctx, &emptypb.Empty{})
	}
	return &imrpc.EngineMetricsGetProxyResponse{Metrics: reply.GetMetrics()}, err
}

func (p fakeProxy) ReplicaList(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineReplicaListProxyResponse, error) {
	e, done, err := p.engine(r)
	if err != nil {
		return nil, err
	}
	defer done()
	var reply *enginerpc.ReplicaListReply
	if e.fake != nil {
		reply, err = e.fake.ReplicaList(ctx, &emptypb.Empty{})
	} else {
		reply, err = e.real.ReplicaList(ctx, &emptypb.Empty{})
	}
	return &imrpc.EngineReplicaListProxyResponse{ReplicaList: reply}, err
}

// VolumeGet of an engine without a configured volume name takes the requested one.
func (p fakeProxy) VolumeGet(ctx context.Context, r *imrpc.ProxyEngineRequest) (*imrpc.EngineVolumeGetProxyResponse, error) {
	e, done, err := p.engine(r)
	if err != nil {
		return nil, err
	}
	defer done()
	if e.fake != nil {
		return &imrpc.EngineVolumeGetProxyResponse{Volume: &enginerpc.Volume{Name: r.VolumeName, Size: 1 << 30}}, nil
	}
	reply, err := e.real.VolumeGet(ctx, &emptypb.Empty{})
	return &imrpc.EngineVolumeGetProxyResponse{Volume: reply}, err
}

func (p fakeProxy) ReplicaRebuildingStatus(context.Context, *imrpc.ProxyEngineRequest) (*imrpc.EngineReplicaRebuildStatusProxyResponse, error) {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	return &imrpc.EngineReplicaRebuildStatusProxyResponse{Status: p.fake.rebuilds}, nil
}

func (s fakeSPDK) EngineGet(_ context.Context, r *spdkrpc.EngineGetRequest) (*spdkrpc.Engine, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	if s.fake.engine.GetName() != r.Name {
		return nil, status.Errorf(codes.NotFound, "cannot find engine %s", r.Name)
	}
	return s.fake.engine, nil
}

func (s fakeSPDK) EngineReplicaList(context.Context, *spdkrpc.EngineReplicaListRequest) (*spdkrpc.EngineReplicaListResponse, error) {
	s.fake.mu.Lock()
	defer s.fake.mu.Unlock()
	return &spdkrpc.EngineReplicaListResponse{Replicas: s.fake.lvols}, nil
}
