package collector

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/longhorn/types/pkg/generated/enginerpc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/testkit"
)

// One exporter over 1,000 attached volumes of 3 replicas on 20 nodes: objects from a real API server, engines from
// stand-ins for the nodes' instance managers. Scrapes must cause no requests; the log has their cost in time and
// memory.
func TestThousandVolumes(t *testing.T) {
	testkit.Long(t, "makes 5,000 objects")
	const volumes, nodes = 1000, 20
	file, err := rows.Open(filepath.Join(testkit.Root(), "build", "results"), "scale", "go test -run ThousandVolumes ./exporters/longhorn/collector")
	if err != nil {
		t.Fatal(err)
	}
	server := kubetest.Start(t)
	server.ApplyCRDs(definitions(t, "1.11.1")...)
	server.Namespace(namespace)
	var managers []*fakeLonghorn
	for n := range nodes {
		f := startFake(t, nil)
		f.metrics = &enginerpc.Metrics{WriteIOPS: 10, WriteThroughput: 81920, WriteLatency: 500_000}
		managers = append(managers, f)
		create(t, server, "InstanceManager", fmt.Sprintf("instance-manager-%d", n),
			map[string]any{"nodeID": fmt.Sprintf("node-%d", n), "type": "aio", "dataEngine": "v1"},
			map[string]any{"currentState": "running", "ip": f.address})
	}
	var makers sync.WaitGroup
	turn := make(chan struct{}, 8)
	for v := range volumes {
		turn <- struct{}{}
		makers.Go(func() {
			defer func() { <-turn }()
			makeVolume(t, server, v, v%nodes)
		})
	}
	makers.Wait()

	log := slog.New(slog.DiscardHandler)
	before := heap()
	cluster, err := NewCluster(server.Config, namespace, "", log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	fleet := NewFleet(FleetOptions{Log: log, Engines: true,
		Poll: Poll{EngineInterval: 800 * time.Millisecond, StateInterval: 5 * time.Second, Timeout: 5 * time.Second}})
	defer func() { fleet.Set(ctx, nil) }()
	o := Options{Log: log, ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Cluster: cluster, Fleet: fleet}
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	set.Add("kubernetes", cluster)
	for _, e := range All() {
		set.Add(e.Name, e.New(o))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	if err := cluster.Run(ctx); err != nil {
		t.Fatal(err)
	}
	go cluster.Feed(ctx, fleet)
	series := 0
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		s := gather(t, registry)
		up, placed := 0, 0
		for name, value := range s {
			if strings.HasPrefix(name, "plumbline_longhorn_engine_up{") && value == 1 {
				up++
			}
			if strings.HasPrefix(name, "plumbline_volume_replica_info{") {
				placed++
			}
		}
		if up != volumes || placed != 3*volumes {
			return fmt.Errorf("%d engines up, %d replicas placed", up, placed)
		}
		series = len(s)
		return nil
	})

	web := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer web.Close()
	requests, began := cluster.Requests(), time.Now()
	var took []time.Duration
	for range 50 {
		start := time.Now()
		response, err := http.Get(web.URL)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := discard(response); err != nil || n == 0 {
			t.Fatalf("scrape of %d bytes: %v", n, err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	requested := cluster.Requests() - requests
	// A watch is renewed now and then; a scrape or a volume must cause no requests.
	if requested > 10 {
		t.Errorf("%d requests to the API server in 50 scrapes", requested)
	}
	calls := 0
	for _, m := range managers {
		m.mu.Lock()
		calls += m.calls
		m.mu.Unlock()
	}
	t.Logf("%d volumes of 3 replicas: %d series (%.0f a volume), scrape p50 %s p99 %s, heap +%d MiB; %d requests to the API server up to the first complete scrape, %d in the %s of 50 scrapes; %d calls to instance managers",
		volumes, series, float64(series)/volumes, took[len(took)/2], took[len(took)*99/100], (heap()-before)>>20,
		requests, requested, time.Since(began).Round(time.Second), calls)
	file.Add("Scale: longhorn_exporter", fmt.Sprintf("%d volumes of 3 replicas on %d nodes", volumes, nodes), "series", fmt.Sprint(series),
		"a volume", fmt.Sprintf("%.0f", float64(series)/volumes), "scrape p50", took[len(took)/2].Round(time.Millisecond).String(),
		"scrape p99", took[len(took)*99/100].Round(time.Millisecond).String(), "heap", fmt.Sprintf("%d MiB", (heap()-before)>>20),
		"API requests in 50 scrapes", fmt.Sprint(requested))
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func discard(response *http.Response) (int64, error) {
	defer response.Body.Close()
	return io.Copy(io.Discard, response.Body)
}

func makeVolume(t *testing.T, server *kubetest.Server, n, node int) {
	name, at := fmt.Sprintf("pvc-%04d", n), fmt.Sprintf("node-%d", node)
	create(t, server, "Volume", name, map[string]any{"size": "1073741824", "numberOfReplicas": int64(3), "dataEngine": "v1", "frontend": "blockdev"},
		map[string]any{"state": "attached", "robustness": "healthy", "currentNodeID": at})
	create(t, server, "Engine", name+"-e-0", map[string]any{"volumeName": name, "nodeID": at, "dataEngine": "v1", "active": true},
		map[string]any{"currentState": "running", "instanceManagerName": fmt.Sprintf("instance-manager-%d", node), "ip": "10.0.0.1", "port": int64(10000), "currentSize": "1073741824"})
	for r := range 3 {
		create(t, server, "Replica", fmt.Sprintf("%s-r-%d", name, r),
			map[string]any{"volumeName": name, "nodeID": fmt.Sprintf("node-%d", (node+r)%20), "dataEngine": "v1", "diskPath": "/var/lib/longhorn/", "healthyAt": "2026-11-21T09:00:00Z"},
			map[string]any{"currentState": "running", "ip": fmt.Sprintf("10.0.%d.%d", n/250, n%250), "port": int64(10000 + 10*r)})
	}
}

func create(t *testing.T, server *kubetest.Server, kind, name string, spec, status map[string]any) {
	client := server.Client.Resource(schema.GroupVersionResource{Group: "longhorn.io", Version: "v1beta2", Resource: strings.ToLower(kind) + "s"}).Namespace(namespace)
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "longhorn.io/v1beta2", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec}}
	made, err := client.Create(context.Background(), o, metav1.CreateOptions{})
	if err == nil {
		made.Object["status"] = status
		_, err = client.UpdateStatus(context.Background(), made, metav1.UpdateOptions{})
	}
	if err != nil {
		t.Errorf("%s %s: %v", kind, name, err)
	}
}
