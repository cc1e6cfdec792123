package collector

import (
	"context"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"
)

// engineAPI has the queries to a volume's engine, however it is reached.
type engineAPI interface {
	metrics(context.Context) (*enginerpc.Metrics, error)
	replicas(context.Context) ([]*enginerpc.ControllerReplica, error)
	volume(context.Context) (*enginerpc.Volume, error)
	close()
}

// directEngine queries a V1 engine's own gRPC server.
type directEngine struct {
	conn   *grpc.ClientConn
	client enginerpc.ControllerServiceClient
}

// newEngine returns the engineAPI for the target's engine.
func newEngine(t Target, d *dialer) (engineAPI, error) {
	switch {
	case t.Backend == BackendV2:
		return newSPDKEngine(t, d)
	case t.Manager != "":
		return newProxiedEngine(t, d)
	}
	return newDirectEngine(t)
}

func newDirectEngine(t Target) (engineAPI, error) {
	conn, err := dial(t.Engine, insecure.NewCredentials(), t.Volume, t.EngineName)
	if err != nil {
		return nil, err
	}
	return &directEngine{conn, enginerpc.NewControllerServiceClient(conn)}, nil
}

func (e *directEngine) metrics(ctx context.Context) (*enginerpc.Metrics, error) {
	reply, err := e.client.MetricsGet(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, err
	}
	if reply.Metrics == nil {
		return nil, badAnswer("MetricsGet answers without metrics")
	}
	return reply.Metrics, nil
}

func (e *directEngine) replicas(ctx context.Context) ([]*enginerpc.ControllerReplica, error) {
	reply, err := e.client.ReplicaList(ctx, &emptypb.Empty{})
	if err != nil {
		return nil, err
	}
	return reply.Replicas, nil
}

func (e *directEngine) volume(ctx context.Context) (*enginerpc.Volume, error) {
	return e.client.VolumeGet(ctx, &emptypb.Empty{})
}

func (e *directEngine) close() { e.conn.Close() }
