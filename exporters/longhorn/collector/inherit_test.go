package collector

import (
	"math"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A volume whose target changes, as at the beginning of each rebuild, has no gap until the next poll: an alert that waits for
// half an hour would begin anew. What was heard of it ends where it cannot be true any more.
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
		"of another backend": {func(t *Target) { t.Backend = BackendV2; t.Manager = "127.0.0.1" }, map[string]float64{up: 0, healthy: absent, replicaUp: absent}},
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
			testkit.Eventually(t, 20*time.Second, func() error {
				s, _ := w.scrape()
				return s.want(known)
			})
			// A poller waits up to an interval before its first poll: of years, so that there is none in this test.
			w.fleet.opts.Poll = Poll{EngineInterval: 1 << 60, StateInterval: 1 << 60, Timeout: time.Second}
			target.Replicas = append([]ReplicaTarget(nil), target.Replicas...)
			test.change(&target)
			w.fleet.Set(t.Context(), []Target{target})
			testkit.Eventually(t, 20*time.Second, func() error { // a poller that cannot connect says so when it runs
				s, _ := w.scrape()
				return s.want(test.want)
			})
		})
	}
}
