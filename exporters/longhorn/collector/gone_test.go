package collector

import (
	"fmt"
	"log/slog"
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Replicas and instance managers of a node that is gone or not ready are not what was last written of them; where only
// the node's manager is away, they are. Conditions are read in both versions of the API.
func TestNodeIsAway(t *testing.T) {
	cluster, err := NewCluster(offline, namespace, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for node, conditions := range map[string]any{
		"ready":      []any{map[string]any{"type": "Ready", "status": "True", "reason": ""}},
		"no-kubelet": []any{map[string]any{"type": "Ready", "status": "False", "reason": "KubernetesNodeNotReady"}},
		"older":      map[string]any{"Ready": map[string]any{"type": "Ready", "status": "False", "reason": "KubernetesNodeGone"}},
		"restarts":   []any{map[string]any{"type": "Ready", "status": "False", "reason": "ManagerPodDown"}},
		"deleted":    nil,
	} {
		if conditions != nil {
			putObject(cluster, "nodes", node, nil, map[string]any{"conditions": conditions})
		}
		putObject(cluster, "replicas", "r-"+node, map[string]any{"volumeName": "vol", "nodeID": node, "healthyAt": "2026-11-21T09:00:00Z"}, running(1))
		putObject(cluster, "instancemanagers", "im-"+node, map[string]any{"nodeID": node}, running(1))
	}
	putObject(cluster, "volumes", "vol", map[string]any{"numberOfReplicas": int64(5)}, map[string]any{"state": "detached"})
	log := slog.New(slog.DiscardHandler)
	o := Options{Log: log, ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster}
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("volume", NewVolumes(o))
	set.Add("node", NewNodes(o))
	registry.MustRegister(set)
	manager := func(node string) string {
		return `plumbline_longhorn_instance_manager_running{data_engine="",instance_manager="im-` + node + `",node="` + node + `"}`
	}
	if err := gather(t, registry).want(map[string]float64{
		`plumbline_longhorn_volume_replicas{state="healthy",volume="vol"}`:     2,
		`plumbline_longhorn_volume_replicas{state="unreachable",volume="vol"}`: 3,
		manager("ready"): 1, manager("no-kubelet"): 0, manager("older"): 0, manager("restarts"): 1, manager("deleted"): 0,
	}); err != nil {
		t.Error(err)
	}
}

// An exporter on a node follows what is on the node and the replicas of the volumes that are attached to it, and no
// other object of the cluster.
func TestOneNodesObjects(t *testing.T) {
	cluster, err := NewCluster(offline, namespace, "node-a", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Serve(map[string]bool{"engine": true, "replica": true})
	replica := func(node string) map[string]any {
		return map[string]any{"volumeName": "vol", "nodeID": node, "dataEngine": "v1"}
	}
	putObject(cluster, "instancemanagers", "im", map[string]any{}, running(9))
	putObject(cluster, "engines", "vol-e", map[string]any{"volumeName": "vol", "nodeID": "node-a", "dataEngine": "v1", "active": true}, running(3))
	putObject(cluster, "replicas", "r1", replica("node-a"), running(1))
	putObject(cluster, elsewhere, "r2", replica("node-b"), running(2))
	targets := cluster.targets()
	if len(targets) != 1 || len(targets[0].Replicas) != 2 || targets[0].Replicas[1].Node != "node-b" {
		t.Errorf("targets %+v", targets)
	}
	if places := cluster.places(); len(places) != 1 || places[0].replica != "r1" {
		t.Errorf("places %+v", places)
	}
}

// On a real API server: of a cluster's objects those of one node are selected, and after an engine has come to the node
// its replicas elsewhere, too.
func TestSelectedObjects(t *testing.T) {
	const volumes, nodes = 30, 10
	server := kubetest.Start(t)
	server.Namespace(namespace)
	for _, kind := range []string{"Volume", "Engine", "Replica", "Node", "InstanceManager"} {
		server.ApplyCRDs(kubetest.Definition("longhorn.io", kind, "v1beta2"))
	}
	node := func(i int) string { return fmt.Sprintf("node-%d", i%nodes) }
	object := func(kind, name, node, volume string, status map[string]any) *unstructured.Unstructured {
		labels := map[string]any{"longhornnode": node, "longhorn.io/node": node}
		if volume != "" {
			labels["longhornvolume"] = volume
		}
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "longhorn.io/v1beta2", "kind": kind,
			"metadata": map[string]any{"name": name, "namespace": namespace, "labels": labels},
			"spec":     map[string]any{"volumeName": volume, "nodeID": node, "dataEngine": "v1", "active": true}, "status": status}}
	}
	engine := func(i int, node string) *unstructured.Unstructured {
		status := running(i)
		status["instanceManagerName"] = "im-" + node
		return object("Engine", fmt.Sprintf("vol-%d-e", i), node, fmt.Sprintf("vol-%d", i), status)
	}
	server.Fill(nodes, func(i int) *unstructured.Unstructured {
		return object("InstanceManager", "im-"+node(i), node(i), "", running(i))
	})
	server.Fill(volumes, func(i int) *unstructured.Unstructured { return engine(i, node(i)) })
	server.Fill(3*volumes, func(i int) *unstructured.Unstructured {
		return object("Replica", fmt.Sprintf("r-%d", i), node(i/3+i%3), fmt.Sprintf("vol-%d", i/3), running(i))
	})
	cluster, err := NewCluster(server.Config, namespace, "node-1", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Serve(map[string]bool{"engine": true, "replica": true})
	if err := cluster.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	fleet := NewFleet(FleetOptions{Log: slog.New(slog.DiscardHandler), Poll: quick})
	go cluster.Feed(t.Context(), fleet)
	is := func(what string, attached int) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			have := map[string]int{"engines": len(all[*engineObject](cluster, "engines")), "replicas": len(all[*replicaObject](cluster, "replicas")),
				elsewhere: len(all[*replicaObject](cluster, elsewhere)), "instancemanagers": len(all[*managerObject](cluster, "instancemanagers"))}
			want := map[string]int{"engines": attached, "replicas": 9, elsewhere: 3 * attached, "instancemanagers": 1}
			if !maps.Equal(have, want) {
				return fmt.Errorf("%s: %v, want %v", what, have, want)
			}
			polled := fleet.list()
			for _, v := range polled {
				if len(v.target.Replicas) != 3 {
					return fmt.Errorf("%s: %s has replicas %+v", what, v.target.Volume, v.target.Replicas)
				}
			}
			if len(polled) != attached {
				return fmt.Errorf("%s: %d volumes are polled", what, len(polled))
			}
			return nil
		})
	}
	is("at first", 3)
	server.Apply(engine(5, "node-1"))
	is("one has come", 4)
	server.Apply(engine(1, "node-2"))
	is("one has gone", 3)
}
