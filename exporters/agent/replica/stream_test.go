package replica

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// The kernel's parser against the reference parser, on the test's own sockets: here the test is the
// replica or the engine, and cuts the stream as it likes.

// encodeMessage writes a message of Longhorn, or of the Jiva with this magic number.
func encodeMessage(magic uint16, id, typ uint32, offset uint64, size uint32, data []byte) []byte {
	b := binary.LittleEndian.AppendUint16(nil, magic)
	b = binary.LittleEndian.AppendUint32(b, id)
	b = binary.LittleEndian.AppendUint32(b, typ)
	b = binary.LittleEndian.AppendUint64(b, offset)
	b = binary.LittleEndian.AppendUint32(b, size)
	if magic == dataconn.MagicJiva {
		b = binary.LittleEndian.AppendUint32(b, 0)
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(len(data)))
	return append(b, data...)
}

// dataconnMagics are those of the wire's versions.
var dataconnMagics = []uint16{dataconn.MagicLonghorn, dataconn.MagicJiva07, dataconn.MagicJiva}

// conversation is a stream of requests and one of the answers to them.
func conversation(magic uint16) (requests, answers []byte, operations int) {
	data := bytes.Repeat([]byte{0x01, 0x1b, 0x02, 0x1b, 0x03, 0x1b}, 15)
	unmap := uint32(7)
	if magic == dataconn.MagicJiva {
		unmap = 9
	}
	size := uint32(len(data))
	add := func(id, typ, size uint32, data []byte, answer []byte) {
		requests = append(requests, encodeMessage(magic, id, typ, uint64(id)<<12, size, data)...)
		answers = append(answers, encodeMessage(magic, id, 2, uint64(id)<<12, uint32(len(answer)), answer)...)
		operations++
	}
	add(1, 6, 0, nil, nil)
	add(2, 1, size, data, nil)
	add(3, 0, size, nil, data)
	add(4, unmap, 4096, nil, nil)
	add(5, 1, size, data, nil)
	return requests, answers, operations
}

// startSelf makes the collector take the test itself for a process of the wire.
func startSelf(t *testing.T, self replicaProcess) *replicaMeter { return startSelfTraced(t, self, nil) }

// startSelfTraced is startSelf with programs that report operations.
func startSelfTraced(t *testing.T, self replicaProcess, tracing *collector.Tracing) *replicaMeter {
	t.Helper()
	wire := dataconnWire()
	own, err := os.ReadFile("/proc/self/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	name, _, _, err := collector.ProcessStat("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	wire.names = []string{name}
	wire.recognise = func(args []string, _ func() string) (*replicaProcess, error) {
		if strings.Join(args, "\x00")+"\x00" != string(own) {
			return nil, nil
		}
		return &self, nil
	}
	m := startReplicaWire(t, wire, "/proc", tracing)
	m.Followed(1)
	return m
}

// dataListener listens on a free port with a free one before it.
func dataListener(t *testing.T) (net.Listener, uint16) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, uint16(l.Addr().(*net.TCPAddr).Port)
}

func pair(t *testing.T, l net.Listener) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	return client, server
}

// send writes pieces one call each; receive reads pieces of these lengths, each by as few
// calls as the kernel lets it.
func send(t *testing.T, c net.Conn, pieces ...[]byte) {
	t.Helper()
	for _, p := range pieces {
		if _, err := c.Write(p); err != nil {
			t.Fatal(err)
		}
	}
}

func receive(t *testing.T, c net.Conn, pieces ...[]byte) {
	t.Helper()
	for _, p := range pieces {
		if _, err := io.ReadFull(c, make([]byte, len(p))); err != nil {
			t.Fatal(err)
		}
	}
}

func cut(b []byte, at int) [][]byte {
	return slices.DeleteFunc([][]byte{b[:at], b[at:]}, func(p []byte) bool { return len(p) == 0 })
}

// A replica's stream cut at every byte, of the requests it reads and of the answers it writes.
func TestReplicaSplitAnywhereService(t *testing.T) {
	testkit.NeedBPF(t)
	for _, magic := range dataconnMagics {
		t.Run(fmt.Sprintf("%#x", magic), func(t *testing.T) {
			l, port := dataListener(t)
			m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "split", Host: "127.0.0.1", Port: port - 1})
			requests, answers, operations := conversation(magic)
			rounds := 0
			for at := range max(len(requests), len(answers)) {
				client, server := pair(t, l)
				send(t, client, requests)
				receive(t, server, cut(requests, at%len(requests))...)
				send(t, server, cut(answers, at%len(answers))...)
				_ = client.Close()
				_ = server.Close()
				rounds++
			}
			r := m.Read()
			r.Clean(t)
			if got := r.Count(operationtest.ServiceMetric, nil); got != uint64(rounds*operations) {
				t.Errorf("%d operations counted, want %d", got, rounds*operations)
			}
		})
	}
}

// An engine's stream cut at every byte, of the requests it writes and of the answers it
// reads. The first request goes out whole: by it the engine's connection is known.
func TestReplicaSplitAnywhereRequest(t *testing.T) {
	testkit.NeedBPF(t)
	for _, magic := range dataconnMagics {
		t.Run(fmt.Sprintf("%#x", magic), func(t *testing.T) {
			l, _ := dataListener(t)
			m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "split", UnseenFrontend: true})
			requests, answers, operations := conversation(magic)
			first := encodeMessage(magic, 0, 6, 0, 0, nil)
			rounds := 0
			for at := range max(len(requests), len(answers)) {
				client, server := pair(t, l)
				send(t, client, first)
				send(t, client, cut(requests, at%len(requests))...)
				receive(t, server, first, requests)
				send(t, server, encodeMessage(magic, 0, 2, 0, 0, nil), answers)
				receive(t, client, append([][]byte{encodeMessage(magic, 0, 2, 0, 0, nil)}, cut(answers, at%len(answers))...)...)
				_ = client.Close()
				_ = server.Close()
				rounds++
			}
			r := m.Read()
			r.Clean(t)
			if got := r.Count(operationtest.RequestMetric, nil); got != uint64(rounds*(operations+1)) {
				t.Errorf("%d operations counted, want %d", got, rounds*(operations+1))
			}
		})
	}
}

// Where the engine's user does not use the wire, a write is over when all replicas have acknowledged it.
func TestReplicaLastAckWithoutFrontend(t *testing.T) {
	testkit.NeedBPF(t)
	m := startSelf(t, replicaProcess{Backend: "jiva", Role: bpf.Engine, Volume: "acks", UnseenFrontend: true})
	var clients, servers []net.Conn
	var ports []uint16
	ping, pong := encodeMessage(dataconn.MagicJiva, 0, 6, 0, 0, nil), encodeMessage(dataconn.MagicJiva, 0, 2, 0, 0, nil)
	for range 3 {
		l, port := dataListener(t)
		client, server := pair(t, l)
		clients, servers, ports = append(clients, client), append(servers, server), append(ports, port)
		send(t, client, ping)
		receive(t, server, ping)
		send(t, server, pong)
		receive(t, client, pong)
	}
	m.Read() // at each scrape the collector counts the replicas
	const writes = 60
	want := map[int]float64{}
	for i := range uint32(writes) {
		request := encodeMessage(dataconn.MagicJiva, i+1, 1, uint64(i)<<12, 512, make([]byte, 512))
		answer := encodeMessage(dataconn.MagicJiva, i+1, 2, uint64(i)<<12, 512, nil)
		order := rand.Perm(3)
		want[order[2]]++
		// One replica may be done before the next one even gets the request.
		for _, k := range order {
			send(t, clients[k], request)
			receive(t, servers[k], request)
			send(t, servers[k], answer)
			receive(t, clients[k], answer)
		}
	}
	r := m.Read()
	for k, port := range ports {
		name := fmt.Sprintf("127.0.0.1:%d", port-1)
		if got := r.Value("plumbline_replica_last_ack_total", operationtest.Match{"address": name, "backend": "jiva"}); got != want[k] {
			t.Errorf("replica %s was last %v times, want %v", name, got, want[k])
		}
	}
	r.Clean(t)
}

// Streams with damage anywhere, cut anywhere: the kernel understands as much of them as its
// reference does.
func TestReplicaReference(t *testing.T) {
	testkit.NeedBPF(t)
	l, port := dataListener(t)
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "reference", Host: "127.0.0.1", Port: port - 1})
	r := rand.New(rand.NewPCG(3, 4))
	var requests, resyncs uint64
	for i := range 500 {
		stream, _, _ := conversation(dataconnMagics[i%len(dataconnMagics)])
		if i%3 > 0 {
			stream[r.IntN(len(stream))] ^= 1 << r.IntN(8)
		}
		if i%7 == 6 {
			// Goes on as another version does.
			more, _, _ := conversation(dataconnMagics[r.IntN(len(dataconnMagics))])
			stream = append(stream, more...)
		}
		if i%5 == 4 {
			stream = stream[r.IntN(len(stream)):]
		}
		client, server := pair(t, l)
		send(t, client, stream)
		reference := &dataconn.Stream{}
		seen := map[uint32]bool{}
		for rest := stream; len(rest) > 0; {
			piece := rest[:min(1+r.IntN(100), len(rest))]
			rest = rest[len(piece):]
			receive(t, server, piece)
			before := reference.Resyncs
			reference.Feed(piece, func(m dataconn.Message) {
				if m.Kind == dataconn.Request {
					seen[m.ID] = true
				}
			})
			if reference.Resyncs > before {
				// What was under way is void.
				clear(seen)
			}
		}
		requests += uint64(len(seen))
		resyncs += uint64(reference.Resyncs)
		// The requests without an answer show as in flight; keep the connection for them.
	}
	got := m.Read()
	if inflight := got.Value("plumbline_replica_services_in_flight", nil); inflight != float64(requests) {
		t.Errorf("%v requests understood, the reference understood %d", inflight, requests)
	}
	if n := got.Value("plumbline_replica_resyncs_total", nil); n != float64(resyncs) || n == 0 {
		t.Errorf("%v resyncs, the reference had %d", n, resyncs)
	}
	if n := got.Value("plumbline_replica_unmatched_total", nil); n != 0 {
		t.Errorf("%v unmatched answers where there were none", n)
	}
	t.Logf("%d requests, %d resyncs", requests, resyncs)
}
