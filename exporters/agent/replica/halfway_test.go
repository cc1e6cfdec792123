package replica

import (
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// An engine sends a request in two calls, and may stall between them: then no replica is late. It is once it has all of
// the request, or if it does not take the rest.
func TestReplicaRequestHalfSent(t *testing.T) {
	testkit.NeedBPF(t)
	l, _ := dataListener(t)
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "half", UnseenFrontend: true})
	client, server := pair(t, l)
	write := func(id uint32, size int) []byte {
		return encodeMessage(dataconn.MagicLonghorn, id, 1, uint64(id)<<12, uint32(size), make([]byte, size))
	}
	answered := func(id uint32, request []byte, pieces ...[]byte) {
		t.Helper()
		send(t, client, pieces...)
		receive(t, server, request)
		a := encodeMessage(dataconn.MagicLonghorn, id, 2, uint64(id)<<12, 0, nil)
		send(t, server, a)
		receive(t, client, a)
	}
	// The first ones show that both ends are in step.
	for id := uint32(1); id <= 3; id++ {
		answered(id, write(id, 512), write(id, 512))
	}
	underWay := func(r operationtest.Reading) bool { return r.Value("plumbline_replica_requests_in_flight", nil) == 1 }
	blamed := func(r operationtest.Reading) bool { return underWay(r) && r.Value(oldestRequest, nil) > 0 }
	spared := func(r operationtest.Reading) bool { return underWay(r) && r.Value(oldestRequest, nil) == 0 }

	request := write(4, 8192)
	send(t, client, request[:8096])
	receive(t, server, request[:8096])
	m.Eventually("a request that is half sent is the engine's", spared)
	send(t, client, request[8096:])
	receive(t, server, request[8096:])
	m.Eventually("a whole request is the replica's", blamed)
	a := encodeMessage(dataconn.MagicLonghorn, 4, 2, 4<<12, 0, nil)
	send(t, server, a)
	receive(t, client, a)

	// More than fits between the two ends: the engine waits for the replica, which reads nothing.
	large := write(5, 32<<20)
	sent := make(chan error, 1)
	go func() {
		_, err := client.Write(large)
		sent <- err
	}()
	m.Eventually("a request that the replica does not take is the replica's", func(r operationtest.Reading) bool {
		return blamed(r) && r.Value(oldestRequest, nil) > 2.5
	})
	receive(t, server, large)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	a = encodeMessage(dataconn.MagicLonghorn, 5, 2, 5<<12, 0, nil)
	send(t, server, a)
	receive(t, client, a)
	m.Eventually("all is answered", func(r operationtest.Reading) bool {
		return r.Count(operationtest.RequestMetric, nil) >= 4 && !underWay(r)
	})
}
