package replica

import (
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// blocking returns the descriptor of a connection whose calls wait.
func blocking(t *testing.T, c net.Conn) int {
	t.Helper()
	f, err := c.(interface{ File() (*os.File, error) }).File()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return int(f.Fd())
}

// A send can be seen as late as at its end, when answers are back already: what is known to be over is never stalled,
// be it the first call on a connection, the next, or one with more answers than are remembered.
func TestReplicaAnsweredBeforeSendSeen(t *testing.T) {
	testkit.NeedBPF(t)
	l, _ := dataListener(t)
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "late", UnseenFrontend: true})
	client, server := pair(t, l)
	fd := blocking(t, client)
	id := uint32(0)
	// late sends requests in one call. The first ones are answered and these answers read before the call is over: the
	// last request is larger than what fits between the two ends.
	late := func(early, rest int) {
		t.Helper()
		var requests []byte
		var lengths []int
		first := id + 1
		for i := range early + rest {
			id++
			data := make([]byte, 512)
			if i == early+rest-1 {
				data = make([]byte, 32<<20)
			}
			request := encodeMessage(dataconn.MagicLonghorn, id, 1, uint64(id)<<12, uint32(len(data)), data)
			lengths = append(lengths, len(request))
			requests = append(requests, request...)
		}
		answer := func(from, to int) {
			for i := from; i < to; i++ {
				a := encodeMessage(dataconn.MagicLonghorn, first+uint32(i), 2, uint64(first+uint32(i))<<12, 0, nil)
				send(t, server, a)
				receive(t, client, a)
			}
		}
		m.unsent(func() {
			sent := make(chan error, 1)
			go func() {
				n, err := syscall.Write(fd, requests)
				if err == nil && n != len(requests) {
					err = syscall.EAGAIN
				}
				sent <- err
			}()
			for _, n := range lengths[:early] {
				receive(t, server, make([]byte, n))
			}
			answer(0, early)
			for _, n := range lengths[early:] {
				receive(t, server, make([]byte, n))
			}
			if err := <-sent; err != nil {
				t.Fatal(err)
			}
		})
		answer(early, early+rest)
	}
	check := func(what string, counted uint64, unmatched, lost float64) {
		t.Helper()
		r := m.Settled()
		if got := r.Count(operationtest.RequestMetric, nil); got != counted {
			t.Errorf("%s: %d requests counted, want %d", what, got, counted)
		}
		if got := r.Value("plumbline_replica_unmatched_total", nil); got != unmatched {
			t.Errorf("%s: %v answers without a request, want %v", what, got, unmatched)
		}
		if got := r.Value("plumbline_replica_lost_total", nil); got != lost {
			t.Errorf("%s: %v lost, want %v", what, got, lost)
		}
		if got := r.Value("plumbline_replica_resyncs_total", nil); got != 0 {
			t.Errorf("%s: %v resyncs", what, got)
		}
	}
	late(1, 1)
	check("the first call on a connection", 0, 0, 0)
	late(1, 1)
	check("the first call whose requests are noted", 1, 0, 0)
	late(3, 2)
	check("a later call", 3, 3, 0)
	late(9, 2)
	check("more answers than are remembered", 3, 14, 11)
	late(1, 1)
	check("the call after that", 4, 15, 11)
}

// A process that is in the middle of its work when it is followed: what was under way while the programs came to be
// attached, one after the other, is not stalled for ever.
func TestReplicaFollowedAtWork(t *testing.T) {
	testkit.NeedBPF(t)
	l, port := dataListener(t)
	quit := make(chan struct{})
	var wg sync.WaitGroup
	defer wg.Wait()
	defer close(quit)
	for range 4 {
		client, server := pair(t, l)
		wg.Go(func() {
			in := make([]byte, 4096)
			for id := uint32(1); ; id++ {
				select {
				case <-quit:
					return
				default:
				}
				for _, step := range []struct {
					from, to net.Conn
					message  []byte
				}{
					{client, server, encodeMessage(dataconn.MagicLonghorn, id, 1, uint64(id)<<12, 512, make([]byte, 512))},
					{server, client, encodeMessage(dataconn.MagicLonghorn, id, 2, uint64(id)<<12, 0, nil)},
				} {
					if _, err := step.from.Write(step.message); err != nil {
						t.Error(err)
						return
					}
					if _, err := io.ReadFull(step.to, in[:len(step.message)]); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	for try := range 10 {
		t.Run(strconv.Itoa(try), func(t *testing.T) {
			m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "busy", Host: "127.0.0.1", Port: port - 1})
			m.Eventually("operations are counted", func(r operationtest.Reading) bool { return r.Count(operationtest.ServiceMetric, nil) > 100 })
			// An operation takes microseconds: one that was under way then and is still, is over and was not seen to be.
			m.Eventually("the oldest operation is over", func(r operationtest.Reading) bool {
				return r.Value("plumbline_replica_services_in_flight", nil) <= 4 && r.Value(oldestService, nil) < 0.1
			})
		})
	}
}

// unsent does something whose sends nobody sees before their end.
func (m *replicaMeter) unsent(do func()) {
	m.T.Helper()
	for _, h := range m.collector.wires[0].kernel.hooks {
		if h.program == bpf.DataconnProgReplicaSending || h.program == bpf.DataconnProgReplicaSendingPacket {
			m.unseen(h.program, do)
			return
		}
	}
	m.T.Fatal("no program sees sends before their end")
}
