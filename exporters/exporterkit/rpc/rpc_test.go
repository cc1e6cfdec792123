package rpc

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plumbline/plumbline/tests/testkit"
)

// visits listens and counts the connections; it answers none.
func visits(t *testing.T) (address string, count *atomic.Int64) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	count = &atomic.Int64{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			count.Add(1)
			conn.Close()
		}
	}()
	return listener.Addr().String(), count
}

// A server that is away is looked for every two seconds: gRPC's own pauses grow to two minutes, and had room for eight
// visits in a minute.
func TestServerIsLookedForSoon(t *testing.T) {
	address, count := visits(t)
	conn, err := grpc.NewClient("passthrough:///"+address, append(Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	testkit.Eventually(t, time.Minute, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn.Invoke(ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{}) == nil {
			return fmt.Errorf("nobody answered, and the call did not fail")
		}
		if n := count.Load(); n < 12 {
			return fmt.Errorf("%d visits", n)
		}
		return nil
	})
}

// A connection times out if the machine does not even acknowledge what it receives.
func TestSilentMachineIsGivenUp(t *testing.T) {
	address, _ := visits(t)
	conn, err := dial(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	socket, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var milliseconds int
	var failed error
	if err := socket.Control(func(fd uintptr) {
		milliseconds, failed = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT)
	}); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
	if got := time.Duration(milliseconds) * time.Millisecond; got != unheard {
		t.Errorf("the connection is given up after %v, want %v", got, unheard)
	}
}
