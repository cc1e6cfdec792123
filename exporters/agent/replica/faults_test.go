package replica

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// background keeps writing and reading until stopped, whatever becomes of it, and returns
// how many of each were answered well.
func (v *testVolume) background(depth int) (stop func() (writes, reads int64)) {
	var wrote, read atomic.Int64
	var wg sync.WaitGroup
	quit := make(chan struct{})
	client := v.Client
	for worker := range depth {
		wg.Go(func() {
			b := make([]byte, 8192)
			for i := int64(0); ; i++ {
				select {
				case <-quit:
					return
				default:
				}
				offset := (int64(worker)*1000 + i%1000) * int64(len(b))
				_, failed := client.WriteAt(b, offset)
				if failed == nil {
					wrote.Add(1)
				}
				_, err := client.ReadAt(b, offset)
				if err == nil {
					read.Add(1)
				}
				// A client whose engine is gone refuses at once, for ever.
				if failed != nil && err != nil {
					select {
					case <-quit:
					case <-time.After(10 * time.Millisecond):
					}
				}
			}
		})
	}
	return func() (int64, int64) {
		close(quit)
		wg.Wait()
		return wrote.Load(), read.Load()
	}
}

// exact does n more writes of the volume and checks that each view counts just these.
func (v *testVolume) exact(m *replicaMeter, n int, replicas ...string) {
	v.t.Helper()
	before := m.Settled()
	v.IO(n, 4, func(i int) error { return v.Write(int64(i)*8192, 8192) })
	after := m.Settled()
	got, want := map[string]uint64{}, map[string]uint64{"frontend": uint64(n), "last": uint64(n)}
	volume := operationtest.Match{"volume": v.Name, "op": "write"}
	got["frontend"] = after.Count(operationtest.FrontendMetric, volume) - before.Count(operationtest.FrontendMetric, volume)
	last := operationtest.Match{"volume": v.Name}
	got["last"] = uint64(after.Value("plumbline_replica_last_ack_total", last) - before.Value("plumbline_replica_last_ack_total", last))
	for _, a := range replicas {
		l := operationtest.Match{"volume": v.Name, "op": "write", "address": a}
		got["request "+a] = after.Count(operationtest.RequestMetric, l) - before.Count(operationtest.RequestMetric, l)
		got["service "+a] = after.Count(operationtest.ServiceMetric, l) - before.Count(operationtest.ServiceMetric, l)
		want["request "+a], want["service "+a] = uint64(n), uint64(n)
	}
	diffCounts(v.t, got, want)
}

// The collector starts while all is in full swing: it takes up the connections, takes no
// harm from what it has not seen, and then counts exactly.
func TestReplicaAdoption(t *testing.T) {
	v := newTestVolume(t, 3)
	v.Start()
	stop := v.background(8)
	m := startReplicaCollector(t, v)
	m.Eventually("all views count", func(r operationtest.Reading) bool {
		seen := 0
		for _, a := range v.Addresses {
			for _, name := range []string{operationtest.RequestMetric, operationtest.ServiceMetric} {
				if r.Count(name, operationtest.Match{"address": a, "op": "write"}) > 100 {
					seen++
				}
			}
		}
		return seen == 6 && r.Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"}) > 100
	})
	stop()
	v.exact(m, 500, v.Addresses...)
	r := m.Read()
	for _, name := range []string{"plumbline_replica_resyncs_total", "plumbline_replica_unmatched_total"} {
		if got := r.Value(name, nil); got != 0 {
			t.Errorf("%s is %v after adoption", name, got)
		}
	}
}

// A replica is killed under load and rebuilt, then the engine: what was under way is counted
// as such, every series goes on, and afterwards the counts are exact again.
func TestReplicaRestarts(t *testing.T) {
	v := newTestVolume(t, 3)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)

	stop := v.background(4)
	killed := v.Replicas[1]
	killed.Process.Kill()
	m.Followed(3)
	stop()
	v.exact(m, 200, v.Addresses[0], v.Addresses[2])
	before := m.Read().Count(operationtest.RequestMetric, operationtest.Match{"address": killed.Address, "op": "write"})
	if before < 200 {
		t.Errorf("%d writes to the killed replica are left of at least 200", before)
	}

	v.Control("rm-replica", "tcp://"+killed.Address)
	if err := os.RemoveAll(killed.Dir); err != nil {
		t.Fatal(err)
	}
	v.StartReplica(killed)
	stop = v.background(4)
	size := fmt.Sprint(rig.VolumeSize)
	v.Control("add-replica", "--size", size, "--current-size", size, "tcp://"+killed.Address)
	stop()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)

	stop = v.background(4)
	v.Stop()
	m.Followed(3)
	stop()
	total := m.Read().Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"})
	for _, r := range v.Replicas {
		// The next engine wants them closed.
		r.Process.Kill()
		v.StartReplica(r)
	}
	v.Start()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)
	r := m.Read()
	if got := r.Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"}); got != total+200 {
		t.Errorf("%d writes of the volume, want %d: a restart must not lose counts", got, total+200)
	}
	for _, name := range []string{"plumbline_replica_resyncs_total", "plumbline_replica_unmatched_total", "plumbline_replica_unrecognised_total"} {
		if got := r.Value(name, nil); got != 0 {
			t.Errorf("%s is %v", name, got)
		}
	}
	t.Logf("%v requests to replicas were never answered", r.Value("plumbline_replica_request_unanswered_total", nil))
}

// Longhorn upgrades the engine of an attached volume: for a while it has two engines, and two processes on each replica's
// folder. Each is counted for itself, the volume keeps its counts, and nothing is lost when the old ones end.
func TestReplicaUpgrade(t *testing.T) {
	v := newTestVolume(t, 2)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(3)
	v.exact(m, 200, v.Addresses...)
	total := m.Read().Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"})

	next := &testVolume{v.Upgrade(), t}
	m.Followed(6)
	next.exact(m, 200, next.Addresses...)
	v.Stop()
	for _, r := range v.Replicas {
		r.Process.Kill()
	}
	m.Followed(3)
	next.exact(m, 200, next.Addresses...)
	r := m.Read()
	if got := r.Count(operationtest.FrontendMetric, operationtest.Match{"volume": v.Name, "op": "write"}); got != total+400 {
		t.Errorf("%d writes of the volume, want %d: an upgrade must not lose counts", got, total+400)
	}
	for _, a := range v.Addresses {
		if got := r.Count(operationtest.RequestMetric, operationtest.Match{"address": a, "op": "write"}); got != 200 {
			t.Errorf("%d writes to %s, want those of before, 200", got, a)
		}
	}
	r.Clean(t)
}

// Peers that send something else on a replica's data port and the frontend are counted and hurt no other connection.
func TestReplicaGarbage(t *testing.T) {
	v := newTestVolume(t, 2)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(3)
	stop := v.background(4)
	ping := []byte{0x01, 0x1b, 9, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
	speeches := [][]byte{
		[]byte("GET / HTTP/1.1\r\nHost: replica\r\n\r\n"),
		bytes.Repeat([]byte{0xff}, 1<<20),
		make([]byte, 4096),
		ping[:13], // cut off
		append(bytes.Clone(ping), bytes.Repeat([]byte("garbage"), 100)...),
	}
	data := strings.TrimSuffix(v.Addresses[0], "0") + "1"
	for _, speech := range speeches {
		for network, address := range map[string]string{"tcp": data, "unix": v.Socket()} {
			c, err := net.Dial(network, address)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(time.Second))
			_, _ = c.Write(speech)
			if cw, ok := c.(interface{ CloseWrite() error }); ok {
				_ = cw.CloseWrite()
			}
			_, _ = io.Copy(io.Discard, c) // until the frontend has had enough of it; a replica keeps it
			_ = c.Close()
		}
	}
	stop()
	r := m.Eventually("the garbage is counted", func(r operationtest.Reading) bool {
		return r.Value("plumbline_replica_unrecognised_total", nil) >= 6 && r.Value("plumbline_replica_resyncs_total", nil) >= 2
	})
	if got := r.Value("plumbline_replica_unmatched_total", nil); got != 0 {
		t.Errorf("%v unmatched answers", got)
	}
	v.exact(m, 300, v.Addresses...)
	// A replica leaves such a connection to Go's garbage collector; the frontend closes it.
	m.Eventually("the frontend's connections are forgotten", func(r operationtest.Reading) bool {
		return r.Value("plumbline_volume_frontend_connections", nil) == 1
	})
}

// localVolume is a volume of data locality strict-local without its replica yet; socket is where
// that will listen.
func localVolume(t *testing.T, options ...string) (v *testVolume, socket string) {
	t.Helper()
	testkit.NeedRoot(t)
	const sockets = "/host/var/lib/longhorn/unix-domain-socket"
	// Ours to remove is the topmost folder that is not there yet.
	top := sockets
	for parent := filepath.Dir(top); parent != "/"; parent = filepath.Dir(parent) {
		if _, err := os.Stat(parent); err == nil {
			break
		}
		top = parent
	}
	if _, err := os.Stat(sockets); err != nil {
		if err := os.MkdirAll(sockets, 0o700); err != nil {
			testkit.Skip(t, "the engine's folder for unix sockets cannot be made: "+err.Error())
		}
		t.Cleanup(func() { _ = os.RemoveAll(top) })
	}
	v = newTestVolume(t, 0, append(options, "--data-server-protocol", "unix")...)
	socket = filepath.Join(sockets, v.Name+".sock")
	t.Cleanup(func() { _ = os.Remove(socket) })
	return v, socket
}

// With data locality strict-local, engine and replica talk over a unix socket.
func TestReplicaStrictLocal(t *testing.T) {
	v, _ := localVolume(t)
	m := startReplicaCollector(t, v)
	v.AddReplica()
	v.Start()
	m.Followed(2)
	v.exact(m, 1000, v.Addresses[0])
	m.Read().Clean(t)
}

// A collector with too little room counts what it cannot hold and measures the rest.
func TestReplicaMapsFull(t *testing.T) {
	v := newTestVolume(t, 2)
	m := startReplicaCollector(t, v, func(w *replicaWire) {
		load := w.load
		w.load = func() (*ebpf.CollectionSpec, error) {
			spec, err := load()
			if err == nil {
				spec.Maps["inflight"].MaxEntries = 8
			}
			return spec, err
		}
	})
	v.Start()
	m.Followed(3)
	const writes = 2000
	v.IO(writes, 32, func(i int) error { return v.Write(int64(i)*8192, 8192) })
	r := m.Settled()
	lost := r.Value("plumbline_replica_lost_total", operationtest.Match{"reason": "requests_full"})
	var counted uint64
	for _, name := range []string{operationtest.RequestMetric, operationtest.ServiceMetric, operationtest.FrontendMetric} {
		counted += r.Count(name, operationtest.Match{"op": "write"})
	}
	pings := float64(r.Count(operationtest.RequestMetric, operationtest.Match{"op": "ping"}) + r.Count(operationtest.ServiceMetric, operationtest.Match{"op": "ping"}))
	if lost == 0 || float64(counted)+lost < 5*writes || float64(counted)+lost > 5*writes+pings+100 {
		t.Errorf("%d operations counted and %v lost, want %d together", counted, lost, 5*writes)
	}
	if unmatched := r.Value("plumbline_replica_unmatched_total", nil); unmatched < lost-100 || unmatched > lost {
		t.Errorf("%v unmatched answers for %v requests lost", unmatched, lost)
	}
}

// Of two writes to one extent at a time it is not known which acknowledgement is whose: they
// are counted apart, and nothing else suffers.
func TestReplicaOverlappingWrites(t *testing.T) {
	v := newTestVolume(t, 2)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(3)
	const writes = 2000
	v.IO(writes, 8, func(i int) error { return v.Write(int64(i%4)*8192, 8192) })
	r := m.Settled()
	last, overlaps := r.Value("plumbline_replica_last_ack_total", nil), r.Value("plumbline_replica_overlapping_writes_total", nil)
	if last+overlaps != writes || overlaps == 0 {
		t.Errorf("%v writes with a last replica and %v overlapping, want %d together", last, overlaps, writes)
	}
	if got := r.Count(operationtest.RequestMetric, operationtest.Match{"op": "write"}); got != 2*writes {
		t.Errorf("%d writes to the replicas, want %d", got, 2*writes)
	}
	r.Clean(t)
}

// Connections that come and go leave nothing behind.
func TestReplicaChurn(t *testing.T) {
	v := newTestVolume(t, 1)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(2)
	const connections = 300
	for range connections {
		v.Connect()
		v.exactOnce()
		v.Client.Close()
	}
	r := m.Eventually("closed connections are forgotten", func(r operationtest.Reading) bool {
		// Left are the two between engine and replica, seen from both ends.
		return r.Value("plumbline_bpf_map_entries", operationtest.Match{"map": "connections"}) == 2*2
	})
	if got := r.Count(operationtest.FrontendMetric, operationtest.Match{"op": "write"}); got != connections {
		t.Errorf("%d writes, want %d", got, connections)
	}
	for _, name := range []string{"inflight", "writes"} {
		if got := r.Value("plumbline_bpf_map_entries", operationtest.Match{"map": name}); got != 0 {
			t.Errorf("%v entries left in map %s", got, name)
		}
	}
	r.Clean(t)
}

func (v *testVolume) exactOnce() {
	v.t.Helper()
	if err := v.Write(rand.Int64N(1000)*8192, 8192); err != nil {
		v.t.Fatal(err)
	}
}

// More volumes than there may be label values share one series.
func TestReplicaVolumeFlood(t *testing.T) {
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler)}, dataconnWire()).wires[0]
	for i := range operation.MaxVolumes + 10 {
		want := fmt.Sprintf("volume-%d", i)
		if i >= operation.MaxVolumes {
			want = "other"
		}
		if got := f.volumeLabel(fmt.Sprintf("volume-%d", i)); got != want {
			t.Fatalf("volume %d has label %q, want %q", i, got, want)
		}
	}
	if got := f.volumeLabel("volume-3"); got != "volume-3" {
		t.Errorf("a known volume got label %q", got)
	}
	if f.overflow != 10 {
		t.Errorf("%d overflows counted, want 10", f.overflow)
	}
}
