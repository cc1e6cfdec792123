// Package rpc connects the exporters to gRPC servers, which come and go with their machines.
package rpc

import (
	"context"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

// unacknowledged is how long a server's machine may leave sent data unacknowledged before the connection is made anew. The
// default is a quarter of an hour, in which a machine that lost its power is long back. A process that hangs on a
// running machine does not count. gRPC's own keepalive is no alternative: by default servers allow it every five
// minutes.
const unacknowledged = 10 * time.Second

// Options make a connection connect when it is first used, past any proxy, and again soon after the other side comes
// back.
func Options() []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithNoProxy(),
		grpc.WithContextDialer(dial),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: time.Second,
		}),
	}
}

func dial(ctx context.Context, address string) (net.Conn, error) {
	dialer := net.Dialer{Control: limit}
	return dialer.DialContext(ctx, "tcp", address)
}

// limit sets unacknowledged for a new socket.
func limit(_, _ string, socket syscall.RawConn) error {
	var err error
	failed := socket.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(unacknowledged.Milliseconds()))
	})
	if failed != nil {
		return failed
	}
	return err
}
