package rpc

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/plumbline/plumbline/tests/testkit"
)

// visits listens and sends when connections came; it answers none.
func visits(t *testing.T) (address string, came <-chan time.Time) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	at := make(chan time.Time, 1000)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			at <- time.Now()
			conn.Close()
		}
	}()
	return listener.Addr().String(), at
}

// A server that is away is retried every two seconds, also after a while. gRPC's own pauses grow to two minutes: the
// eighth is of 20 seconds at least.
func TestServerIsRetriedSoon(t *testing.T) {
	address, came := visits(t)
	conn, err := grpc.NewClient("passthrough:///"+address, append(Options(), grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var at []time.Time
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if conn.Invoke(ctx, "/none/None", &emptypb.Empty{}, &emptypb.Empty{}) == nil {
			return fmt.Errorf("nobody answered, and the call did not fail")
		}
		for len(came) > 0 {
			at = append(at, <-came)
		}
		if len(at) < 12 {
			return fmt.Errorf("%d visits", len(at))
		}
		return nil
	})
	// A busy machine makes pauses longer, but hardly all of them.
	shortest := time.Hour
	for i := 8; i < 12; i++ {
		shortest = min(shortest, at[i].Sub(at[i-1]))
	}
	if shortest > 10*time.Second {
		t.Errorf("the shortest of the latest pauses is of %v", shortest)
	}
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
	if got := time.Duration(milliseconds) * time.Millisecond; got != unacknowledged {
		t.Errorf("the connection is given up after %v, want %v", got, unacknowledged)
	}
}
