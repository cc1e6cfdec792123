package collector

import (
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A replica that fails leaves its volume's target, as it does not run any more, while the engine still lists it, by its
// address alone: it keeps its name, also over further changes, and in an exporter that began after that.
func TestFailedReplicaKeepsItsName(t *testing.T) {
	const gone = "127.0.0.1:1"
	f := startFake(t, nil)
	f.metrics, f.volume = &enginerpc.Metrics{}, &enginerpc.Volume{Name: "vol", Size: 1 << 30}
	f.replica, f.rebuild = &enginerpc.Replica{State: "open", HeadFileSize: 4096, Head: "head", Chain: []string{"head"}}, &enginerpc.ReplicaRebuildStatusResponse{}
	f.replicas = []*enginerpc.ControllerReplica{
		{Address: &enginerpc.ReplicaAddress{Address: "tcp://" + f.address}, Mode: enginerpc.ReplicaMode_RW},
		{Address: &enginerpc.ReplicaAddress{Address: "tcp://" + gone}, Mode: enginerpc.ReplicaMode_ERR},
	}
	want := map[string]float64{}
	for replica, there := range map[string]bool{"r2": true, gone: false} {
		mode := fmt.Sprintf(`plumbline_longhorn_engine_replica_mode{mode="ERR",replica=%q,volume="vol"}`, replica)
		up := fmt.Sprintf(`plumbline_longhorn_replica_up{replica=%q,volume="vol"}`, replica)
		want[mode], want[up] = 1, 0
		if !there {
			want[mode], want[up] = math.NaN(), math.NaN()
		}
	}
	target := func(replicas ...ReplicaTarget) Target {
		return Target{Volume: "vol", Engine: f.address, Backend: BackendV1, Replicas: replicas}
	}
	first := ReplicaTarget{Name: "r1", Address: f.address}
	moved := first
	moved.Node = "another"
	check := func(what string, w *watched) {
		t.Helper()
		select {
		case <-w.fleet.list()[0].polled:
		case <-time.After(testkit.DefaultTimeout):
			t.Fatalf("%s: no request was made", what)
		}
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			s, _ := w.scrape()
			return s.want(want)
		})
	}
	w := exporterFor(t, quick, target(first, ReplicaTarget{Name: "r2", Address: gone}))
	check("both run", w)
	w.fleet.Set(t.Context(), []Target{target(first)})
	check("one has failed", w)
	w.fleet.Set(t.Context(), []Target{target(moved)})
	check("the other has changed", w)

	late := target(first)
	late.names = map[string]string{gone: "r2"}
	check("begun later", exporterFor(t, quick, late))
}

// An engine that was not queried yet is not reported as down.
func TestEngineIsNotQueriedYet(t *testing.T) {
	w := exporterFor(t, Poll{EngineInterval: 1 << 60, StateInterval: 1 << 60, Timeout: time.Second}, Target{Volume: "vol", Engine: "127.0.0.1:1", Backend: BackendV1})
	s, _ := w.scrape()
	if err := s.want(map[string]float64{
		`plumbline_longhorn_engine_up{volume="vol"}`:                  math.NaN(),
		`plumbline_longhorn_engine_sampled_reads_total{volume="vol"}`: 0,
	}); err != nil {
		t.Error(err)
	}
}

// putObject makes an object known to a cluster that is not followed.
func putObject(cluster *Cluster, resource, name string, spec, status map[string]any) {
	cluster.Put(resource, &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": spec, "status": status}})
}

// running is the status of an instance that runs at 10.42.0.HOST:10000.
func running(host int) map[string]any {
	return map[string]any{"currentState": "running", "instanceManagerName": "im", "ip": fmt.Sprint("10.42.0.", host), "port": int64(10000)}
}

// movingVolume is a cluster with a volume that moves to another node. One of its two replicas has failed; the one that
// runs has a second object for the second engine.
func movingVolume(t *testing.T) *Cluster {
	t.Helper()
	cluster, err := NewCluster(offline, namespace, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	replica := func(engine string, active bool) map[string]any {
		return map[string]any{"volumeName": "vol", "engineName": engine, "nodeID": "node-a", "dataEngine": "v1", "healthyAt": "2026-11-21T09:00:00Z", "active": active}
	}
	engine := func(active bool, addresses map[string]any) map[string]any {
		return map[string]any{"volumeName": "vol", "nodeID": "node-a", "dataEngine": "v1", "active": active, "replicaAddressMap": addresses}
	}
	failed := replica("vol-e-0", true)
	failed["failedAt"] = "2026-11-21T10:00:00Z"
	has := running(4)
	has["currentReplicaAddressMap"] = map[string]any{"r1": "10.42.0.1:10000", "r2": "10.42.0.2:10000"}
	putObject(cluster, "instancemanagers", "im", map[string]any{}, running(9))
	putObject(cluster, "volumes", "vol", map[string]any{"numberOfReplicas": int64(2)}, map[string]any{"state": "attached"})
	putObject(cluster, "engines", "vol-e-0", engine(true, map[string]any{"r1": "10.42.0.1:10000", "r0": "10.42.0.7:10000"}), has)
	putObject(cluster, "engines", "vol-e-1", engine(false, nil), running(5))
	putObject(cluster, "replicas", "r1", replica("vol-e-0", true), running(1))
	putObject(cluster, "replicas", "r2", failed, map[string]any{"currentState": "error"})
	putObject(cluster, "replicas", "r1-again", replica("vol-e-1", false), running(3))
	return cluster
}

// The names of replicas that do not run come from their engine's object.
func TestNamesFromEngine(t *testing.T) {
	targets := movingVolume(t).targets()
	if len(targets) != 1 {
		t.Fatalf("targets are %+v", targets)
	}
	if want := map[string]string{"10.42.0.2:10000": "r2", "10.42.0.7:10000": "r0"}; !maps.Equal(targets[0].names, want) {
		t.Errorf("the names are %v, want %v", targets[0].names, want)
	}
}

// An engine with more replicas than can be is left out.
func TestEngineOfManyReplicas(t *testing.T) {
	cluster := movingVolume(t)
	addresses := map[string]any{}
	for i := range maxReplicas + 1 {
		addresses[fmt.Sprint(i)] = "10.42.0.1:10000"
	}
	putObject(cluster, "engines", "vol-e-0", map[string]any{"volumeName": "vol", "active": true, "replicaAddressMap": addresses}, running(4))
	if targets := cluster.targets(); len(targets) > 0 {
		t.Errorf("targets are %+v", targets)
	}
}

// While a volume moves, a replica's second object is no second replica.
func TestReplicasOfAMovingVolume(t *testing.T) {
	cluster := movingVolume(t)
	targets := cluster.targets()
	if len(targets) != 1 || len(targets[0].Replicas) != 1 || targets[0].Replicas[0].Name != "r1" {
		t.Errorf("targets are %+v, want one with the replica r1", targets)
	}
	var placed []string
	for _, p := range cluster.places() {
		placed = append(placed, p.replica)
	}
	if slices.Sort(placed); !slices.Equal(placed, []string{"r1", "r2"}) {
		t.Errorf("the replicas with a place are %v", placed)
	}
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(slog.New(slog.DiscardHandler), testkit.DefaultTimeout)
	set.Add("volume", NewVolumes(Options{Cluster: cluster}))
	registry.MustRegister(set)
	if err := gather(t, registry).want(map[string]float64{
		`plumbline_longhorn_volume_replicas{state="healthy",volume="vol"}`: 1,
		`plumbline_longhorn_volume_replicas{state="failed",volume="vol"}`:  1,
	}); err != nil {
		t.Error(err)
	}
}
