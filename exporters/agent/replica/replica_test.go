package replica

import (
	"math/rand/v2"
	"testing"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/rig"
)

// Every operation the user of a volume sends is counted once in each view, with its bytes.
func TestReplicaCounts(t *testing.T) {
	testReplicaCounts(t)
}

// The same on a kernel before 6.16, where the first sight of a request is its packet.
func TestReplicaCountsByPacket(t *testing.T) {
	testReplicaCounts(t, func(w *replicaWire) {
		for i := range w.hooks {
			if w.hooks[i].program == bpf.DataconnProgReplicaSending {
				w.hooks[i].tracepoint = "not_in_this_kernel"
			}
		}
	})
}

func testReplicaCounts(t *testing.T, change ...func(*replicaWire)) {
	v := newTestVolume(t, 3)
	m := startReplicaCollector(t, v, change...)
	v.Start()
	m.Followed(4)

	const writes, reads, unmaps, large = 5000, 3000, 100, 50
	const block, big = 8192, 1 << 20
	slots := int64(rig.VolumeSize / big)
	// No two writes at a time to one extent: which replica was last would be unknown.
	v.IO(writes, 8, func(i int) error { return v.Write(int64(i)*block, block) })
	v.IO(large, 8, func(i int) error { return v.Write(int64(i)*big, big) })
	v.IO(reads, 8, func(int) error { return v.Read(rand.Int64N(slots)*big, block) })
	v.IO(large, 8, func(i int) error { return v.Read(int64(i)*big, big) })
	v.IO(unmaps, 1, func(i int) error { _, err := v.Client.UnmapAt(4096, int64(i)*4096); return err })

	r := m.Settled()
	got := countsOf(r, v)
	want := map[string]uint64{
		operationtest.FrontendMetric + "  write": writes + large,
		operationtest.FrontendMetric + "  read":  reads + large,
		operationtest.FrontendMetric + "  unmap": unmaps,
	}
	var requested, served uint64
	for _, tested := range v.Replicas {
		a := " " + tested.Address
		want[operationtest.RequestMetric+a+" write"], want[operationtest.ServiceMetric+a+" write"] = writes+large, writes+large
		want[operationtest.RequestMetric+a+" unmap"], want[operationtest.ServiceMetric+a+" unmap"] = unmaps, unmaps
		// Reads go to one replica each: only the total is given.
		requested += got[operationtest.RequestMetric+a+" read"]
		served += got[operationtest.ServiceMetric+a+" read"]
		want[operationtest.RequestMetric+a+" read"], want[operationtest.ServiceMetric+a+" read"] = got[operationtest.RequestMetric+a+" read"], got[operationtest.RequestMetric+a+" read"]
	}
	diffCounts(t, got, want)
	if requested != reads+large || served != reads+large {
		t.Errorf("%d reads requested from the replicas, %d served; want %d", requested, served, reads+large)
	}
	r.Clean(t)
	for name, copies := range map[string]float64{"plumbline_replica_request_bytes_total": 3, "plumbline_replica_service_bytes_total": 3, "plumbline_volume_frontend_bytes_total": 1} {
		if got, want := r.Value(name, operationtest.Match{"op": "write"}), copies*(writes*block+large*big); got != want {
			t.Errorf("%s of writes: %v, want %v", name, got, want)
		}
		if got, want := r.Value(name, operationtest.Match{"op": "read"}), float64(reads*block+large*big); got != want {
			t.Errorf("%s of reads: %v, want %v", name, got, want)
		}
	}
	if got := r.Value("plumbline_replica_last_ack_total", nil); got != writes+large {
		t.Errorf("%v writes acknowledged by a last replica, want %v", got, writes+large)
	}
	if got := r.Value("plumbline_replica_request_connections", nil); got != 6 {
		t.Errorf("%v connections to replicas, want two to each", got)
	}
	for _, tested := range v.Replicas {
		rtt := r.Sum(operationtest.RequestMetric, operationtest.Match{"address": tested.Address, "op": "write"}) / (writes + large)
		service := r.Sum(operationtest.ServiceMetric, operationtest.Match{"address": tested.Address, "op": "write"}) / (writes + large)
		t.Logf("%s: write round trip %.0f us, service %.0f us", tested.Address, rtt*1e6, service*1e6)
		if service >= rtt {
			t.Errorf("%s: service takes %v s of a round trip of %v s", tested.Address, service, rtt)
		}
		if got := r.Value("plumbline_replica_info", operationtest.Match{"address": tested.Address, "replica": tested.Name, "directory": tested.Dir}); got != 1 {
			t.Errorf("no information about %s", tested.Address)
		}
	}
	t.Logf("frontend write %.0f us", r.Sum(operationtest.FrontendMetric, operationtest.Match{"op": "write"})/(writes+large)*1e6)
}
