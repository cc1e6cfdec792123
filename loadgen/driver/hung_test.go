package driver

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// hung is the connection string of a server that takes connections and never answers, as one whose process is stopped.
func hung(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	host, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "host=" + host + " port=" + port + " user=x dbname=x sslmode=disable"
}

// begun makes a load's tables, or looks for them, and fails the test if that does not end by itself.
func begun(t *testing.T, r rig) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- r.Init(t.Context()) }() // without a deadline, as a canary has none
	select {
	case err := <-ended:
		return err
	case <-time.After(testkit.DefaultTimeout):
		t.Fatal("it waits without end")
		return nil
	}
}

// A server that hangs at the start costs its share of the timeout, and the next one is tried.
func TestHungAtTheStart(t *testing.T) {
	r := newRig(t, Config{DSN: hung(t), Profile: "kv-select", Timeout: 500 * time.Millisecond})
	if err := begun(t, r); !Unreached(err) {
		t.Errorf("alone it gave %v", err)
	}
	other := testdb.StartStaller(t)
	r = newRig(t, Config{DSN: hung(t), Others: []string{other.DSN()}, Profile: "kv-select", Timeout: 12 * time.Second})
	if err := begun(t, r); err != nil {
		t.Errorf("with another that answers it gave %v", err)
	}
}

// One that lets a client in and then does not answer is left as well, for the next try.
func TestHungAfterTheLogin(t *testing.T) {
	first, second := testdb.StartStaller(t), testdb.StartStaller(t)
	release := first.Hold()
	defer release()
	// The client does not query whether the server is writable.
	dsn := first.DSN() + " target_session_attrs=any"
	r := newRig(t, Config{DSN: dsn, Others: []string{second.DSN()}, Profile: "kv-select", Timeout: 12 * time.Second})
	if err := begun(t, r); err == nil || Unreached(err) || adapter.Kind(t.Context(), err) != metrics.Timeout {
		t.Errorf("the first gave %v, want a time-out", err)
	}
	if err := begun(t, r); err != nil {
		t.Errorf("the second gave %v", err)
	}
}

// A load that is stopped leaves no server for that.
func TestEndLeavesNone(t *testing.T) {
	r := newRig(t, Config{DSN: testdb.StartStaller(t).DSN(), Others: []string{testdb.StartStaller(t).DSN()}, Profile: "kv-select", Timeout: time.Minute})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	err := r.withTables(ctx, func(conn) error {
		cancel()
		return ctx.Err()
	})
	if first := r.servers.first.Load(); !errors.Is(err, context.Canceled) || first != 0 {
		t.Errorf("it gave %v, and server %d is tried first", err, first+1)
	}
}
