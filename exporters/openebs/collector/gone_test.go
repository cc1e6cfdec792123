package collector

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// The last states written for a dead node's replica and pool are not exported as current. Those of other nodes are, and
// all are if nothing is written any more.
func TestCStorOfADeadNode(t *testing.T) {
	now, old := time.Now().UTC().Format(time.RFC3339), time.Now().Add(-3*time.Hour).UTC().Format(time.RFC3339)
	const node = "nodes"
	for name, test := range map[string]struct {
		written   map[string]string // by the pool that writes
		nodes     map[string]string // whether they are ready
		replicas  string            // pools whose replica is Healthy
		pools     string            // pools that are ONLINE
		forgotten bool              // the pool's replicas are gone
	}{
		"all live":                {map[string]string{"p1": now, "p2": now}, nil, "p1 p2", "p1 p2", false},
		"one is silent":           {map[string]string{"p1": now, "p2": old}, nil, "p1", "p1", false},
		"its node is not ready":   {map[string]string{"p1": now, "p2": old}, map[string]string{"node-p1": "True", "node-p2": "Unknown"}, "p1", "p1", false},
		"its node is gone":        {map[string]string{"p1": now}, map[string]string{"node-p1": "True"}, "p1", "p1", true},
		"a pool without replicas": {map[string]string{"p1": now}, map[string]string{"node-p1": "True", "node-p2": "True"}, "p1", "p1 p2", true},
		"its kubelet alone":       {map[string]string{"p1": now, "p2": now}, map[string]string{"node-p1": "True", "node-p2": "False"}, "p1 p2", "p1 p2", false},
		"nobody writes":           {map[string]string{"p1": old, "p2": old}, nil, "p1 p2", "p1 p2", false},
		"no times":                {map[string]string{"p1": "", "p2": ""}, nil, "p1 p2", "p1 p2", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Log: slog.New(slog.DiscardHandler)}
			var err error
			if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
				t.Fatal(err)
			}
			registry := registryOf(t, t.Context(), o, "cstor")
			put := func(resource, name string, labels, spec, status map[string]any) {
				o.Objects.Put(resource, &unstructured.Unstructured{Object: map[string]any{
					"metadata": map[string]any{"name": name, "labels": labels}, "spec": spec, "status": status}})
			}
			for _, pool := range []string{"p1", "p2"} {
				put("cstorpoolinstances", pool, nil, map[string]any{"hostName": "node-" + pool}, map[string]any{"phase": "ONLINE"})
				if written, ok := test.written[pool]; ok {
					put("cstorvolumereplicas", "of-"+pool, map[string]any{"openebs.io/persistent-volume": "vol", "cstorpoolinstance.openebs.io/name": pool}, nil,
						map[string]any{"phase": "Healthy", "lastUpdateTime": written})
				}
			}
			for name, ready := range test.nodes {
				put(node, name, nil, nil, map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": ready}}})
			}
			text := exposition.Text(t, registry)
			for _, pool := range []string{"p1", "p2"} {
				replica := `plumbline_openebs_replica_state{backend="cstor",replica="of-` + pool + `",state="Healthy",volume="vol"} 1`
				if strings.Contains(text, replica) != strings.Contains(test.replicas, pool) {
					t.Errorf("replicas that are Healthy: want %s\n%s", test.replicas, text)
				}
				online := `plumbline_openebs_pool_state{backend="cstor",node="node-` + pool + `",pool="` + pool + `",state="ONLINE"} 1`
				if strings.Contains(text, online) != strings.Contains(test.pools, pool) {
					t.Errorf("pools that are ONLINE: want %s\n%s", test.pools, text)
				}
			}
		})
	}
}

// What a Jiva controller that does not answer last reported of its replicas is not exported as if it were so.
func TestJivaReplicasOfADeadController(t *testing.T) {
	for phase, want := range map[string]bool{"Ready": true, "Syncing": true, "Unknown": false} {
		o := Options{Log: slog.New(slog.DiscardHandler)}
		var err error
		if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
			t.Fatal(err)
		}
		registry := registryOf(t, t.Context(), o, "jiva")
		o.Objects.Put("jivavolumes", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "jiva-1"}, "spec": map[string]any{"pv": "pvc-jiva"},
			"status": map[string]any{"phase": phase, "replicaStatus": []any{map[string]any{"address": "tcp://10.0.0.7:9502", "mode": "RW"}}}}})
		text := exposition.Text(t, registry)
		if got := strings.Contains(text, `state="RW",volume="pvc-jiva"} 1`); got != want || !strings.Contains(text, `plumbline_volume_replica_info{address="10.0.0.7:9502"`) {
			t.Errorf("%s: a replica is RW: %v\n%s", phase, got, text)
		}
	}
}

// A node that is not online takes its pools' states and its replicas out of the API's answers: the pool is Unknown, and
// where it and its replicas are stays.
func TestMayastorNodeIsNotOnline(t *testing.T) {
	for _, node := range []string{"Offline", "Unknown"} {
		f := startMayastor(t, mayastorAnswers(t, true, "127.0.0.1:1"))
		registry := mayastorRegistry(t, f, "mayastor")
		places := []string{
			`plumbline_openebs_pool_info{backend="mayastor",device="sdb",disk="aio:///dev/disk/by-id/d1?blk_size=512",node="node-1",pool="pool-1"} 1`,
			`plumbline_volume_replica_info{address="10.1.0.5:8420",backend="mayastor",device="sdb",node="node-1",replica="rep-a",volume="pvc-vol-a"} 1`,
		}
		await(t, registry, append(places, `plumbline_openebs_pool_state{backend="mayastor",node="node-1",pool="pool-1",state="Online"} 1`)...)
		f.set(func() {
			f.answers["/nodes"].([]any)[0].(map[string]any)["state"].(map[string]any)["status"] = node
			delete(f.answers["/pools"].([]any)[0].(map[string]any), "state")
			f.answers["/replicas"] = []any{}
			replica(f, 0)["state"] = "Unknown"
		})
		await(t, registry, append(places,
			`plumbline_openebs_node_state{node="node-1",state="`+node+`"} 1`,
			`plumbline_openebs_pool_state{backend="mayastor",node="node-1",pool="pool-1",state="Unknown"} 1`,
			`plumbline_openebs_pool_state{backend="mayastor",node="node-1",pool="pool-1",state="Online"} 0`,
			`plumbline_openebs_replica_state{backend="mayastor",replica="rep-a",state="Unknown",volume="pvc-vol-a"} 1`)...)
	}
}
