package collector

import (
	"fmt"
	"maps"
	"math"
	"strings"
	"testing"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/longhorn/types/pkg/generated/spdkrpc"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Answers that cannot be true are counted and named, and give no number.
func TestWrongAnswers(t *testing.T) {
	const (
		engineUp = `plumbline_longhorn_engine_up{volume="vol"}`
		size     = `plumbline_longhorn_engine_size_bytes{volume="vol"}`
		healthy  = `plumbline_volume_healthy_replicas{backend="longhorn-v1",volume="vol"}`
		reads    = `plumbline_longhorn_engine_sampled_reads_total{volume="vol"}`
		up       = `plumbline_longhorn_replica_up{replica="r1",volume="vol"}`
		head     = `plumbline_longhorn_replica_head_bytes{replica="r1",volume="vol"}`
		progress = `plumbline_longhorn_replica_rebuild_progress_ratio{replica="r1",source="127.0.0.1:1",volume="vol"}`
		rw       = `plumbline_longhorn_engine_replica_mode{mode="RW",replica="r1",volume="vol"}`
		wo       = `plumbline_longhorn_engine_replica_mode{mode="WO",replica="r1",volume="vol"}`
	)
	const revision = `plumbline_longhorn_replica_revision_counter{replica="r1",volume="vol"}`
	absent := math.NaN()
	right := map[string]float64{revision: 0, engineUp: 1, size: 1 << 30, healthy: 1, up: 1, head: 4096, progress: 0.4, rw: 1, wo: 0}
	for name, test := range map[string]struct {
		change func(*fakeLonghorn)
		want   map[string]float64 // what differs from right
		errors bool
	}{
		"right":        {func(*fakeLonghorn) {}, nil, false},
		"no metrics":   {func(f *fakeLonghorn) { f.metrics = nil }, map[string]float64{engineUp: 0, reads: 0}, true},
		"unknown mode": {func(f *fakeLonghorn) { f.replicas[0].Mode = 7 }, map[string]float64{healthy: 0, rw: 0, wo: 0}, true},
		"other volume": {func(f *fakeLonghorn) { f.volume.Name = "another" }, map[string]float64{size: absent}, true},
		"no address":   {func(f *fakeLonghorn) { f.replicas = append(f.replicas, &enginerpc.ControllerReplica{}) }, nil, true},
		"listed twice": {func(f *fakeLonghorn) { f.replicas = append(f.replicas, f.replicas[0]) }, nil, false},
		"listed with its former address": {func(f *fakeLonghorn) {
			f.replicas = append([]*enginerpc.ControllerReplica{{Address: &enginerpc.ReplicaAddress{Address: "127.0.0.1:1", InstanceName: "r1"},
				Mode: enginerpc.ReplicaMode_ERR}}, f.replicas...)
		}, nil, false},
		"no replica":     {func(f *fakeLonghorn) { f.replica = nil }, map[string]float64{up: 0, head: absent, progress: absent, revision: absent}, true},
		"too much done":  {func(f *fakeLonghorn) { f.rebuild.Progress = 150 }, map[string]float64{progress: absent}, true},
		"size no number": {func(f *fakeLonghorn) { f.replica.Disks["volume-snap-a.img"].Size = "much" }, map[string]float64{head: absent}, true},
		"many replicas": {func(f *fakeLonghorn) {
			for i := range 1000 {
				f.replicas = append(f.replicas, &enginerpc.ControllerReplica{Address: &enginerpc.ReplicaAddress{Address: fmt.Sprintf("127.0.0.1:%d", 30000+i)}})
			}
		}, map[string]float64{engineUp: 0, healthy: absent, rw: absent, wo: absent}, true},
		"long name": {func(f *fakeLonghorn) {
			f.replicas = append(f.replicas, &enginerpc.ControllerReplica{Address: &enginerpc.ReplicaAddress{Address: strings.Repeat("x", 1<<20) + ":1"}})
		}, nil, true},
		"odd name": {func(f *fakeLonghorn) {
			f.replicas = append(f.replicas, &enginerpc.ControllerReplica{Address: &enginerpc.ReplicaAddress{Address: f.address[:len(f.address)-1] + "\n:1", InstanceName: "\x00" + strings.Repeat("é", 1000)}})
		}, nil, true},
		"negative size":     {func(f *fakeLonghorn) { f.volume.Size = -1 }, map[string]float64{size: absent}, true},
		"too large":         {func(f *fakeLonghorn) { f.volume.Size = math.MaxInt64 }, map[string]float64{size: absent}, true},
		"negative head":     {func(f *fakeLonghorn) { f.replica.HeadFileSize = -1 }, map[string]float64{head: absent}, true},
		"negative revision": {func(f *fakeLonghorn) { f.replica.RevisionCounter = -5 }, map[string]float64{revision: absent}, true},
		"snapshot too large": {func(f *fakeLonghorn) { f.replica.Disks["volume-snap-a.img"].Size = "18446744073709551615" },
			map[string]float64{head: absent}, true},
		"many snapshots": {func(f *fakeLonghorn) {
			for i := range maxSnapshots + 1 {
				f.replica.Disks[fmt.Sprint(i)] = &enginerpc.DiskInfo{Size: "1"}
			}
		}, map[string]float64{head: absent}, true},
		"absurd rate":    {func(f *fakeLonghorn) { f.metrics.ReadIOPS = math.MaxUint64 }, map[string]float64{engineUp: 0, reads: 0}, true},
		"absurd latency": {func(f *fakeLonghorn) { f.metrics.ReadLatency = math.MaxUint64 }, map[string]float64{engineUp: 0, reads: 0}, true},
		"5 MiB": {func(f *fakeLonghorn) { f.replica.Disks[strings.Repeat("x", 5<<20)] = &enginerpc.DiskInfo{Size: "1"} },
			map[string]float64{up: 0, head: absent, progress: absent, revision: absent}, true},
		"not opened": {func(f *fakeLonghorn) { f.replica.Chain, f.replica.HeadFileSize = nil, 0 }, map[string]float64{head: absent, revision: absent}, false},
		"complete":   {func(f *fakeLonghorn) { f.rebuild.State, f.rebuild.Progress = "complete", 93 }, map[string]float64{progress: 1}, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			f.metrics = &enginerpc.Metrics{ReadIOPS: 5, ReadThroughput: 5, ReadLatency: 5}
			f.volume = &enginerpc.Volume{Name: "vol", Size: 1 << 30}
			f.replicas = []*enginerpc.ControllerReplica{{Address: &enginerpc.ReplicaAddress{Address: "tcp://" + f.address}, Mode: enginerpc.ReplicaMode_RW}}
			f.replica = &enginerpc.Replica{State: "rebuilding", Head: "volume-head-001.img", HeadFileSize: 4096, Chain: []string{"volume-head-001.img"},
				Disks: map[string]*enginerpc.DiskInfo{"volume-head-001.img": {Size: "4096"}, "volume-snap-a.img": {Size: "100"}}}
			f.rebuild = &enginerpc.ReplicaRebuildStatusResponse{IsRebuilding: true, State: "in_progress", Progress: 40, FromReplicaAddress: "tcp://127.0.0.1:1"}
			f.set(func() { test.change(f) })
			w := exporterFor(t, quick, Target{Volume: "vol", Engine: f.address, Backend: BackendV1,
				Replicas: []ReplicaTarget{{Name: "r1", Address: f.address}}})
			want := maps.Clone(right)
			maps.Copy(want, test.want)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				s, _ := w.scrape()
				if got := s[`plumbline_longhorn_poll_errors_total{reason="answer",volume="vol"}`] > 0; got != test.errors {
					return fmt.Errorf("wrong answer counted: %t, want %t", got, test.errors)
				}
				return s.want(want)
			})
		})
	}
}

// A V2 volume is queried through the SPDK service: modes, rates, per-replica rates, rebuild.
func TestV2(t *testing.T) {
	f := startFake(t, nil)
	f.engine = &spdkrpc.Engine{Name: "vol-e-0", VolumeName: "vol", SpecSize: 1 << 30,
		ReplicaAddressMap: map[string]string{"vol-r-a": "10.0.0.1:20001", "vol-r-b": "10.0.0.2:20001"},
		ReplicaModeMap:    map[string]spdkrpc.ReplicaMode{"vol-r-a": spdkrpc.ReplicaMode_RW, "vol-r-b": spdkrpc.ReplicaMode_WO}}
	f.lvols = map[string]*spdkrpc.Replica{
		"vol-r-a": {Name: "vol-r-a", State: "running", Head: &spdkrpc.Lvol{ActualSize: 8192}, Snapshots: map[string]*spdkrpc.Lvol{"s": {ActualSize: 4096}}},
		"vol-r-b": {Name: "vol-r-b", State: "running", Rebuilding: true, Head: &spdkrpc.Lvol{}},
	}
	f.rebuilds = map[string]*enginerpc.ReplicaRebuildStatusResponse{
		"tcp://10.0.0.2:20001": {IsRebuilding: true, State: "in_progress", Progress: 25, FromReplicaAddress: "tcp://10.0.0.1:20001"},
	}
	rate := &enginerpc.Metrics{WriteIOPS: 1000, WriteThroughput: 4096000, WriteLatency: 500_000}
	f.bdevs = map[string]*enginerpc.Metrics{"vol-e-0": rate, "vol-r-bn1": {WriteIOPS: 1000, WriteLatency: 400_000}}
	w := exporterFor(t, quick, Target{Volume: "vol", EngineName: "vol-e-0", Backend: BackendV2, Manager: f.address,
		Replicas: []ReplicaTarget{{Name: "vol-r-a", Address: "10.0.0.1:20001"}, {Name: "vol-r-b", Address: "10.0.0.2:20001"}}})
	var s samples
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ = w.scrape()
		if s[`plumbline_longhorn_engine_sampled_writes_total{volume="vol"}`] == 0 || s[`plumbline_longhorn_replica_sampled_writes_total{replica="vol-r-b",volume="vol"}`] == 0 {
			return fmt.Errorf("no writes counted yet")
		}
		return s.want(map[string]float64{
			`plumbline_longhorn_engine_up{volume="vol"}`:                                                         1,
			`plumbline_longhorn_engine_size_bytes{volume="vol"}`:                                                 1 << 30,
			`plumbline_volume_healthy_replicas{backend="longhorn-v2",volume="vol"}`:                              1,
			`plumbline_longhorn_engine_replica_mode{mode="WO",replica="vol-r-b",volume="vol"}`:                   1,
			`plumbline_longhorn_replica_up{replica="vol-r-a",volume="vol"}`:                                      1,
			`plumbline_longhorn_replica_head_bytes{replica="vol-r-a",volume="vol"}`:                              8192,
			`plumbline_longhorn_replica_snapshot_bytes{replica="vol-r-a",volume="vol"}`:                          4096,
			`plumbline_longhorn_replica_rebuilding{replica="vol-r-a",volume="vol"}`:                              0,
			`plumbline_longhorn_replica_rebuilding{replica="vol-r-b",volume="vol"}`:                              1,
			`plumbline_longhorn_replica_rebuild_progress_ratio{replica="vol-r-b",source="vol-r-a",volume="vol"}`: 0.25,
			`plumbline_longhorn_replica_sampled_writes_total{replica="vol-r-a",volume="vol"}`:                    math.NaN(),
			`plumbline_longhorn_poll_errors_total{reason="answer",volume="vol"}`:                                 0,
			`plumbline_longhorn_poll_errors_total{reason="other",volume="vol"}`:                                  0,
		})
	})
	mean := s[`plumbline_longhorn_engine_sampled_write_seconds_total{volume="vol"}`] / s[`plumbline_longhorn_engine_sampled_writes_total{volume="vol"}`]
	if math.Abs(mean-500e-6) > 1e-9 {
		t.Errorf("mean write latency is %v s, by the rates 500 us", mean)
	}
	// Answers under way are still being written: new ones, not changed ones.
	f.set(func() {
		f.lvols, f.engine = maps.Clone(f.lvols), &spdkrpc.Engine{Name: "gone"}
		delete(f.lvols, "vol-r-b")
	})
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		return s.want(map[string]float64{
			`plumbline_longhorn_engine_up{volume="vol"}`:                            0,
			`plumbline_longhorn_replica_up{replica="vol-r-b",volume="vol"}`:         0,
			`plumbline_volume_healthy_replicas{backend="longhorn-v2",volume="vol"}`: math.NaN(),
		})
	})
}
