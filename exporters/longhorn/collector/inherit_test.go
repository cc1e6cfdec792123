package collector

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A volume whose target changes, as at the beginning of each rebuild, has no gap until the next poll: an alert with a
// `for` of half an hour would start again. Its last results end where they cannot be true any more.
func TestChangedTargetHasNoGap(t *testing.T) {
	const (
		up        = `plumbline_longhorn_engine_up{volume="vol"}`
		size      = `plumbline_longhorn_engine_size_bytes{volume="vol"}`
		healthy   = `plumbline_volume_healthy_replicas{backend="longhorn-v1",volume="vol"}`
		mode      = `plumbline_longhorn_engine_replica_mode{mode="RW",replica="r1",volume="vol"}`
		replicaUp = `plumbline_longhorn_replica_up{replica="r1",volume="vol"}`
		newUp     = `plumbline_longhorn_replica_up{replica="r2",volume="vol"}`
		head      = `plumbline_longhorn_replica_head_bytes{replica="r1",volume="vol"}`
	)
	absent := math.NaN()
	known := map[string]float64{up: 1, size: 1 << 30, healthy: 1, mode: 1, replicaUp: 1, head: 4096, newUp: absent}
	unknown := map[string]float64{up: 0, size: absent, healthy: absent, mode: absent}
	first, second := ReplicaTarget{Name: "r1"}, ReplicaTarget{Name: "r2", Address: "127.0.0.1:1"}
	for name, test := range map[string]struct {
		change func(*Target)
		want   map[string]float64
	}{
		"a replica more":     {func(t *Target) { t.Replicas = append(t.Replicas, second) }, known},
		"another engine":     {func(t *Target) { t.Engine = "127.0.0.1:1" }, known},
		"a replica renamed":  {func(t *Target) { t.Replicas[0].Name = "r3" }, map[string]float64{up: 1, healthy: 1, mode: absent, replicaUp: absent}},
		"no way to engine":   {func(t *Target) { t.Engine = "%zz:1" }, unknown},
		"no way to replica":  {func(t *Target) { t.Replicas[0].Control = "%zz:1" }, map[string]float64{up: 1, healthy: 1, replicaUp: 0, head: absent}},
		"of another backend": {func(t *Target) { t.Backend = BackendV2; t.Manager = "127.0.0.1" }, map[string]float64{up: absent, healthy: absent, replicaUp: absent}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startFake(t, nil)
			f.metrics = &enginerpc.Metrics{}
			f.volume = &enginerpc.Volume{Name: "vol", Size: 1 << 30}
			f.replicas = []*enginerpc.ControllerReplica{{Address: &enginerpc.ReplicaAddress{Address: f.address}, Mode: enginerpc.ReplicaMode_RW}}
			f.replica = &enginerpc.Replica{State: "open", HeadFileSize: 4096, Head: "head", Chain: []string{"head"}}
			f.rebuild = &enginerpc.ReplicaRebuildStatusResponse{}
			target := Target{Volume: "vol", Engine: f.address, Backend: BackendV1, Replicas: []ReplicaTarget{first}}
			target.Replicas[0].Address = f.address
			w := exporterFor(t, quick, target)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				s, _ := w.scrape()
				return s.want(known)
			})
			// A poller waits up to an interval before its first poll: of years, so that there is none in this test.
			w.fleet.opts.Poll = Poll{EngineInterval: 1 << 60, StateInterval: 1 << 60, Timeout: time.Second}
			target.Replicas = append([]ReplicaTarget(nil), target.Replicas...)
			test.change(&target)
			w.fleet.Set(t.Context(), []Target{target})
			testkit.Eventually(t, testkit.DefaultTimeout, func() error { // a poller that cannot connect reports it when it runs
				s, _ := w.scrape()
				return s.want(test.want)
			})
		})
	}
}

// A replica that began anew at another address is polled there alone, also while the engine's list still has the
// address before.
func TestReplicaAtAnotherAddressIsPolledOnce(t *testing.T) {
	f := startFake(t, nil)
	f.metrics, f.volume = &enginerpc.Metrics{}, &enginerpc.Volume{Name: "vol", Size: 1 << 30}
	f.replica, f.rebuild = &enginerpc.Replica{State: "open", HeadFileSize: 4096, Head: "head", Chain: []string{"head"}}, &enginerpc.ReplicaRebuildStatusResponse{}
	listed := func(name, address string) *enginerpc.ControllerReplica {
		return &enginerpc.ControllerReplica{Address: &enginerpc.ReplicaAddress{Address: address, InstanceName: name}, Mode: enginerpc.ReplicaMode_RW}
	}
	f.replicas = []*enginerpc.ControllerReplica{listed("r1", f.address), listed("r2", "127.0.0.1:1"), listed("r2", "127.0.0.1:4")}
	target := Target{Volume: "vol", Engine: f.address, Backend: BackendV1, Replicas: []ReplicaTarget{{Name: "r1", Address: f.address}}}
	w := exporterFor(t, quick, target)
	polled := func() (places []string) {
		for _, r := range w.fleet.list()[0].replicas() {
			places = append(places, r.name+"@"+r.address)
		}
		return places
	}
	polls := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if got := polled(); !slices.Equal(got, want) {
				return fmt.Errorf("polled are %v, want %v", got, want)
			}
			return nil
		})
	}
	polls("r1@"+f.address, "r2@127.0.0.1:1")
	// As above: there is no poll of the new target's in this test.
	w.fleet.opts.Poll = Poll{EngineInterval: 1 << 60, StateInterval: 1 << 60, Timeout: time.Second}
	target.Replicas = []ReplicaTarget{{Name: "r1", Address: "127.0.0.1:7"}}
	w.fleet.Set(t.Context(), []Target{target})
	if got, want := polled(), []string{"r1@127.0.0.1:7", "r2@127.0.0.1:1"}; !slices.Equal(got, want) {
		t.Errorf("polled are %v, want %v", got, want)
	}
}
