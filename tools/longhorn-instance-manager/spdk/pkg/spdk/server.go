// Package spdk serves the V2 data engine's API, each call of which fails.
package spdk

import (
	"context"

	"github.com/longhorn/types/pkg/generated/spdkrpc"
)

// Server answers each call with the code Unimplemented.
type Server struct {
	spdkrpc.UnimplementedSPDKServiceServer
}

// NewServer returns a Server.
func NewServer(context.Context, int32, int32) (*Server, error) { return &Server{}, nil }
