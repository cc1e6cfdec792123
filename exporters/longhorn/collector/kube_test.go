package collector

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

const namespace = "longhorn-system"

// modules are the folders of tools that pin longhorn-manager, by version.
var modules = map[string]string{"1.8.0": "longhorn-manager", "1.11.1": "longhorn-manager-1.11"}

// definitions are Longhorn's own of a version, of the kinds that the exporter reads: longhorn-manager's module has
// them.
func definitions(t *testing.T, version string) []*unstructured.Unstructured {
	t.Helper()
	all := kubetest.ModuleCRDs(t, modules[version])
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool {
		plural, _, _ := strings.Cut(o.GetName(), ".")
		return !slices.Contains([]string{"engines", "instancemanagers", "nodes", "replicas", "volumes"}, plural)
	})
}

// TestObjects runs on the published definitions of an old and a new Longhorn: objects
// appear, change and disappear in the exposition.
func TestObjects(t *testing.T) {
	for version, targets := range map[string][]Target{
		"1.8.0": {{
			Volume: "pvc-1", Engine: "10.42.0.10:10015", EngineName: "pvc-1-e-0", Backend: BackendV1, Manager: "10.42.0.10",
			Replicas: []ReplicaTarget{
				{Name: "pvc-1-r-a", Address: "10.42.0.10:10000", Control: "10.42.0.10:10000", Node: "node-a", Directory: "/var/lib/longhorn/"},
				{Name: "pvc-1-r-b", Address: "192.168.9.2:10000", Control: "10.42.1.10:10000", Node: "node-b", Directory: "/var/lib/longhorn/"},
			},
		}},
		"1.11.1": {{
			Volume: "pvc-3", Engine: "10.42.0.11:20001", EngineName: "pvc-3-e-0", Backend: BackendV2, Manager: "10.42.0.11",
			Replicas: []ReplicaTarget{
				{Name: "pvc-3-r-a", Address: "10.42.0.11:20005", Control: "10.42.0.11:20005", Node: "node-a", Directory: "0000:05:00.0"},
			},
		}},
	} {
		t.Run(version, func(t *testing.T) {
			server := kubetest.Start(t)
			server.ApplyCRDs(definitions(t, version)...)
			server.Namespace(namespace)
			cluster, registry := observe(t, server, "")
			objects := kubetest.Read(t, filepath.Join("testdata", "objects-"+version+".yaml"))
			server.Apply(objects...)
			awaitObjects(t, registry, objects)
			exposition.Golden(t, registry, filepath.Join("testdata", "objects-"+version+".prom"), volatile...)
			if got := cluster.targets(); fmt.Sprint(got) != fmt.Sprint(targets) {
				t.Errorf("targets are\n%+v\nwant\n%+v", got, targets)
			}

			// Should a volume have two active engines here, it is one target, and the same one each time.
			i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetName() == targets[0].EngineName })
			twin := objects[i].DeepCopy()
			twin.SetName(targets[0].EngineName + "-twin")
			server.Apply(twin)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if e := all[*engineObject](cluster, "engines")[twin.GetName()]; e == nil || e.Status.CurrentState != "running" {
					return fmt.Errorf("the second engine is not seen to run")
				}
				return nil
			})
			for range 50 {
				if got := cluster.targets(); fmt.Sprint(got) != fmt.Sprint(targets) {
					t.Fatalf("with a second engine targets are\n%+v\nwant\n%+v", got, targets)
				}
			}

			volume := objects[0]
			name := volume.GetName()
			set(t, volume, "healthy", "status", "robustness")
			server.Apply(volume)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				return gather(t, registry).want(map[string]float64{
					fmt.Sprintf("plumbline_longhorn_volume_robustness{robustness=%q,volume=%q}", "healthy", name):  1,
					fmt.Sprintf("plumbline_longhorn_volume_robustness{robustness=%q,volume=%q}", "degraded", name): 0,
					fmt.Sprintf("plumbline_longhorn_volume_degraded_since_timestamp_seconds{volume=%q}", name):     math.NaN(),
				})
			})
			server.Delete(volume)
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				for series := range gather(t, registry) {
					if strings.HasPrefix(series, "plumbline_longhorn_volume_") && strings.Contains(series, fmt.Sprintf("volume=%q", name)) {
						return fmt.Errorf("%s is still there", series)
					}
				}
				return nil
			})
		})
	}
}

// An expired watch (410 Gone) and a server that is away are counted and lose nothing.
func TestWatchExpiresAndServerIsAway(t *testing.T) {
	server := kubetest.Start(t)
	server.ApplyCRDs(definitions(t, "1.11.1")...)
	server.Namespace(namespace)
	proxy := newBadProxy(t, server.Config)
	server.Config.Host = proxy.url
	_, registry := observe(t, server, "")
	objects := kubetest.Read(t, "testdata/objects-1.11.1.yaml")
	server.Apply(objects...)
	awaitObjects(t, registry, objects)

	state := func(name, state string) string {
		return fmt.Sprintf("plumbline_longhorn_volume_state{state=%q,volume=%q}", state, name)
	}
	expired := `plumbline_kubernetes_errors_total{reason="expired",resource="volumes"}`
	proxy.expireNext("volumes")
	set(t, objects[1], "deleting", "status", "state")
	server.Apply(objects[1])
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s := gather(t, registry)
		if s[expired] == 0 {
			return fmt.Errorf("%s is 0", expired)
		}
		return s.want(map[string]float64{state("pvc-4", "deleting"): 1})
	})

	proxy.away(true)
	set(t, objects[1], "attaching", "status", "state")
	server.Apply(objects[1])
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s := gather(t, registry)
		if s[`plumbline_kubernetes_errors_total{reason="other",resource="volumes"}`] == 0 {
			return fmt.Errorf("no error counted while the server is away")
		}
		return s.want(map[string]float64{state("pvc-4", "deleting"): 1, state("pvc-3", "attached"): 1})
	})
	proxy.away(false)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		return gather(t, registry).want(map[string]float64{state("pvc-4", "attaching"): 1})
	})
}

// An object that cannot be read is left out, counted and named; the others stay.
func TestUnreadableObject(t *testing.T) {
	var log bytes.Buffer
	cluster, err := NewCluster(offline, namespace, "", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	good := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "good"}, "spec": map[string]any{"numberOfReplicas": int64(3)}}}
	bad := good.DeepCopy()
	bad.SetName("bad")
	cluster.Put("volumes", good)
	cluster.Put("volumes", bad)
	set(t, bad, "three", "spec", "numberOfReplicas")
	cluster.Put("volumes", bad)
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(slog.New(slog.DiscardHandler), testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	set.Add("volume", NewVolumes(Options{Cluster: cluster}))
	registry.MustRegister(set)
	if err := gather(t, registry).want(map[string]float64{
		`plumbline_kubernetes_rejected_total{resource="volumes"}`:                1,
		`plumbline_volume_desired_replicas{backend="longhorn-v1",volume="good"}`: 3,
		`plumbline_volume_desired_replicas{backend="longhorn-v1",volume="bad"}`:  math.NaN(),
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "name=bad") {
		t.Errorf("the log does not name the object:\n%s", log.String())
	}
}

// A volume whose time cannot be parsed lacks that one metric. A condition that is there twice is exposed once. The log
// has it once, and the collector goes on.
func TestOddVolume(t *testing.T) {
	var log bytes.Buffer
	cluster, err := NewCluster(offline, namespace, "", slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for name, since := range map[string]string{"good": "2026-11-21T10:00:00Z", "bad": "yesterday"} {
		for range 3 { // it changes often
			ready := map[string]any{"type": "Scheduled", "status": "True"}
			cluster.Put("volumes", &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": name}, "spec": map[string]any{"numberOfReplicas": int64(3)},
				"status": map[string]any{"robustness": "degraded", "lastDegradedAt": since, "conditions": []any{ready, ready}},
			}})
		}
	}
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(slog.New(slog.DiscardHandler), testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	set.Add("volume", NewVolumes(Options{Cluster: cluster}))
	registry.MustRegister(set)
	if err := gather(t, registry).want(map[string]float64{
		`plumbline_scrape_collector_success{collector="volume"}`:                    1,
		`plumbline_scrape_collector_dropped_series_total{collector="volume"}`:       0,
		`plumbline_kubernetes_unknown_values_total{resource="volumes"}`:             3,
		`plumbline_longhorn_volume_degraded_since_timestamp_seconds{volume="good"}`: 1795255200,
		`plumbline_longhorn_volume_degraded_since_timestamp_seconds{volume="bad"}`:  math.NaN(),
		`plumbline_longhorn_volume_robustness{robustness="degraded",volume="bad"}`:  1,
		`plumbline_longhorn_volume_condition{condition="Scheduled",volume="bad"}`:   1,
	}); err != nil {
		t.Error(err)
	}
	if n := strings.Count(log.String(), "lastDegradedAt"); n != 1 || !strings.Contains(log.String(), "name=bad") {
		t.Errorf("the log has it %d times, not once:\n%s", n, log.String())
	}
}

// An object that cannot be true, or is above its bounds, is left out and counted as well.
func TestObjectAboveItsBounds(t *testing.T) {
	cluster, err := NewCluster(offline, namespace, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var conditions []any
	disks := map[string]any{}
	for i := range 1000 {
		conditions = append(conditions, map[string]any{"type": fmt.Sprint(i), "status": "True"})
		disks[fmt.Sprint(i)] = map[string]any{"diskPath": "/"}
	}
	put := func(resource, name string, o map[string]any) {
		o["metadata"] = map[string]any{"name": name}
		cluster.Put(resource, &unstructured.Unstructured{Object: o})
	}
	put("volumes", "negative", map[string]any{"spec": map[string]any{"numberOfReplicas": int64(-1)}})
	put("volumes", "huge", map[string]any{"spec": map[string]any{"numberOfReplicas": int64(1) << 62}})
	put("volumes", "many", map[string]any{"status": map[string]any{"conditions": conditions}})
	put("volumes", "good", map[string]any{"spec": map[string]any{"numberOfReplicas": int64(3)}})
	put("nodes", "node", map[string]any{"status": map[string]any{"diskStatus": disks}})
	log := slog.New(slog.DiscardHandler)
	o := Options{Log: log, ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster}
	registry := prometheus.NewRegistry()
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	set.Add("volume", NewVolumes(o))
	set.Add("node", NewNodes(o))
	registry.MustRegister(set)
	if err := gather(t, registry).want(map[string]float64{
		`plumbline_kubernetes_rejected_total{resource="volumes"}`:                3,
		`plumbline_kubernetes_rejected_total{resource="nodes"}`:                  1,
		`plumbline_volume_desired_replicas{backend="longhorn-v1",volume="good"}`: 3,
		`plumbline_volume_desired_replicas{backend="longhorn-v1",volume="huge"}`: math.NaN(),
		`plumbline_longhorn_volume_condition{condition="1",volume="many"}`:       math.NaN(),
	}); err != nil {
		t.Error(err)
	}
}

// observe runs the collectors that read objects.
func observe(t *testing.T, server *kubetest.Server, node string) (*Cluster, *prometheus.Registry) {
	t.Helper()
	var output bytes.Buffer
	log := slog.New(slog.NewTextHandler(&output, nil))
	cluster, err := NewCluster(server.Config, namespace, node, log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		if t.Failed() {
			t.Logf("exporter's log:\n%s", output.Bytes()[max(0, output.Len()-4000):])
		}
	})
	if err := cluster.Run(ctx); err != nil {
		t.Fatal(err)
	}
	o := Options{Log: log, Node: "none", ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster, Fleet: NewFleet(FleetOptions{Log: log})}
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	for _, e := range All() {
		set.Add(e.Name, e.New(o))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	return cluster, registry
}

// awaitObjects waits until all objects are known and the last one has its status.
func awaitObjects(t *testing.T, registry *prometheus.Registry, objects []*unstructured.Unstructured) {
	t.Helper()
	want := map[string]float64{}
	for _, o := range objects {
		want[fmt.Sprintf("plumbline_kubernetes_objects{resource=%q}", strings.ToLower(o.GetKind())+"s")]++
	}
	last := objects[len(objects)-1]
	manager, _, _ := unstructured.NestedString(last.Object, "status", "currentState")
	want[fmt.Sprintf("plumbline_longhorn_instance_manager_running{data_engine=%q,instance_manager=%q,node=%q}",
		field(last, "spec", "dataEngine"), last.GetName(), field(last, "spec", "nodeID"))] = truth(manager == "running")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error { return gather(t, registry).want(want) })
}

func field(o *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(o.Object, path...)
	return s
}

func set(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func gather(t *testing.T, g prometheus.Gatherer) samples {
	t.Helper()
	return parse(t, []byte(exposition.Text(t, g)))
}

// volatile are families whose values differ from run to run.
var volatile = []string{"plumbline_scrape_collector_duration_seconds", "plumbline_kubernetes_requests_total",
	"plumbline_kubernetes_unknown_values_total", "plumbline_kubernetes_errors_total"}
