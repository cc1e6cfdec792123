package collector

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A directory whose disk cannot be found is counted, and fails neither the collector nor the other replicas.
func TestUntraceableDirectory(t *testing.T) {
	w := exporterFor(t, quick, Target{Volume: "vol", Engine: "127.0.0.1:1", Backend: BackendV1, Replicas: []ReplicaTarget{
		{Name: "lost", Address: "127.0.0.1:1", Directory: "/no/such/directory"},
		{Name: "known", Address: "127.0.0.2:1", Device: "sdx"},
		{Name: "bus", Address: "127.0.0.3:1", Directory: "0000:05:00.0"}, // of the second engine
		{Name: "whole", Address: "127.0.0.4:1", Directory: "/dev/nvme1n1"},
	}})
	info := `plumbline_volume_replica_info{address="127.0.0.%d:1",backend="longhorn-v1",device=%q,node="node-a",replica=%q,volume="vol"}`
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s, _ := w.scrape()
		return s.want(map[string]float64{
			fmt.Sprintf(info, 1, "", "lost"):                          1,
			fmt.Sprintf(info, 2, "sdx", "known"):                      1,
			fmt.Sprintf(info, 3, "", "bus"):                           1,
			fmt.Sprintf(info, 4, "", "whole"):                         1,
			`plumbline_untraced_paths{collector="replica"}`:           1,
			`plumbline_scrape_collector_success{collector="replica"}`: 1,
		})
	})
}

// The same of the disks that Longhorn's nodes name.
func TestUntraceableDisk(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	cluster, err := NewCluster(offline, namespace, "", log)
	if err != nil {
		t.Fatal(err)
	}
	cluster.Put("nodes", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "node-a"},
		"status": map[string]any{"diskStatus": map[string]any{"lost": map[string]any{"diskPath": "/no/such/directory"}, "bus": map[string]any{"diskPath": "0000:05:00.0"}, "empty": map[string]any{}}}}})
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("node", NewNodes(Options{Log: log, Node: "node-a", ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster}))
	registry.MustRegister(set)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		return gather(t, registry).want(map[string]float64{
			`plumbline_longhorn_disk_scheduled_replicas{disk="lost",node="node-a"}`:  0,
			`plumbline_longhorn_disk_scheduled_replicas{disk="empty",node="node-a"}`: 0,
			`plumbline_untraced_paths{collector="node"}`:                             1,
			`plumbline_scrape_collector_success{collector="node"}`:                   1,
		})
	})
}
