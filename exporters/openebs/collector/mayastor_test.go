package collector

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// Every field there is, and every optional one missing: both are read as they are.
func TestMayastorAnswers(t *testing.T) {
	for _, full := range []bool{true, false} {
		name := map[bool]string{true: "full", false: "minimal"}[full]
		t.Run(name, func(t *testing.T) {
			f := startMayastor(t, mayastorAnswers(t, full, "127.0.0.1:1"))
			registry := mayastorRegistry(t, f, "mayastor")
			await(t, registry, `plumbline_openebs_mayastor_up 1`, `plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-b"}`)
			if full {
				await(t, registry, `plumbline_openebs_pool_info{backend="mayastor",device="sdb"`)
			}
			exposition.Golden(t, registry, "testdata/mayastor-"+name+".prom", volatile...)
		})
	}
}

// What Mayastor should not answer: counted, left out, and the rest stays.
func TestMayastorBadAnswers(t *testing.T) {
	errors := func(reason string) string {
		return fmt.Sprintf(`plumbline_openebs_mayastor_errors_total{reason=%q}`, reason)
	}
	const volumeA = `plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-a"}`
	const failed = `plumbline_scrape_collector_success{collector="mayastor"} 0`
	for name, test := range map[string]struct {
		change func(*fakeMayastor)
		count  string   // the counter that must rise
		absent []string // beginnings of series that must not be there
		there  []string
	}{
		"no JSON":     {func(f *fakeMayastor) { f.raw = "<html>" }, errors("answer"), []string{"plumbline_volume_", "plumbline_openebs_pool"}, []string{"plumbline_openebs_mayastor_up 0", failed}},
		"no entries":  {func(f *fakeMayastor) { f.raw = "{}" }, errors("answer"), []string{"plumbline_volume_"}, []string{failed}},
		"error":       {func(f *fakeMayastor) { f.status = http.StatusServiceUnavailable }, errors("status"), []string{"plumbline_volume_"}, []string{failed}},
		"hang":        {func(f *fakeMayastor) { f.hang = make(chan struct{}) }, errors("timeout"), []string{"plumbline_volume_"}, []string{failed}},
		"pools only":  {func(f *fakeMayastor) { delete(f.answers, "/volumes") }, errors("status"), []string{"plumbline_volume_"}, []string{"plumbline_openebs_pool_info{", failed}},
		"one bad":     {func(f *fakeMayastor) { volume(f, 0)["spec"].(map[string]any)["num_replicas"] = "three" }, errors("answer"), []string{volumeA}, []string{`plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-b"}`}},
		"one without": {func(f *fakeMayastor) { delete(volume(f, 0)["spec"].(map[string]any), "num_replicas") }, errors("answer"), []string{volumeA}, nil},
		"unknown state": {func(f *fakeMayastor) { volume(f, 0)["state"].(map[string]any)["status"] = "Hibernating" },
			`plumbline_openebs_mayastor_unknown_values_total`, []string{`plumbline_openebs_volume_state{backend="mayastor",state="Online",volume="pvc-vol-a"} 1`},
			[]string{`plumbline_openebs_volume_state{backend="mayastor",state="Online",volume="pvc-vol-a"} 0`, volumeA}},
		"negative":     {func(f *fakeMayastor) { volume(f, 0)["spec"].(map[string]any)["num_replicas"] = -3 }, errors("answer"), []string{volumeA}, []string{`plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-b"}`}},
		"overflow":     {func(f *fakeMayastor) { volume(f, 0)["spec"].(map[string]any)["num_replicas"] = 1e300 }, errors("answer"), []string{volumeA}, nil},
		"huge replica": {func(f *fakeMayastor) { replica(f, 0)["usage"].(map[string]any)["allocated"] = int64(1) << 62 }, errors("answer"), []string{volumeA}, nil},
		"many replicas": {func(f *fakeMayastor) {
			topology := volume(f, 0)["state"].(map[string]any)["replica_topology"].(map[string]any)
			for i := range maxReplicas + 1 {
				topology[fmt.Sprint("r", i)] = clone(topology["rep-a"])
			}
		}, errors("answer"), []string{volumeA}, []string{`plumbline_volume_desired_replicas{backend="mayastor",volume="pvc-vol-b"}`}},
		"many nodes": {func(f *fakeMayastor) {
			node := f.answers["/nodes"].([]any)[0]
			var nodes []any
			for range maxNodes + 1 {
				nodes = append(nodes, node)
			}
			f.answers["/nodes"] = nodes
		}, errors("answer"), []string{"plumbline_openebs_node_state"}, []string{volumeA, failed}},
		"progress": {func(f *fakeMayastor) { replica(f, 0)["rebuild-progress"] = 4711 }, errors("answer"), []string{`plumbline_openebs_replica_rebuild_progress_ratio{replica="rep-a",volume="pvc-vol-a"}`}, []string{volumeA}},
	} {
		t.Run(name, func(t *testing.T) {
			f := startMayastor(t, mayastorAnswers(t, true, "127.0.0.1:1"))
			registry := registryWithTimeout(t, f, time.Second, "mayastor")
			await(t, registry, volumeA)
			f.set(func() { test.change(f) })
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				text := exposition.Text(t, registry)
				if !strings.Contains(text, test.count+" ") || strings.Contains(text, test.count+" 0\n") {
					return fmt.Errorf("%s did not rise", test.count)
				}
				for _, series := range test.absent {
					if strings.Contains(text, "\n"+series) {
						return fmt.Errorf("%s is there", series)
					}
				}
				for _, series := range test.there {
					if !strings.Contains(text, "\n"+series) {
						return fmt.Errorf("%s is not there", series)
					}
				}
				return nil
			})
		})
	}
}

// A published volume whose nexus is gone with its io-engine, or shut down, has no replica that takes part in reads and
// writes; one that is not published has no count.
func TestMayastorTargetIsDead(t *testing.T) {
	const healthy = `plumbline_volume_healthy_replicas{backend="mayastor",volume="pvc-vol-a"} `
	state := func(f *fakeMayastor) map[string]any { return volume(f, 0)["state"].(map[string]any) }
	spec := func(f *fakeMayastor) map[string]any { return volume(f, 0)["spec"].(map[string]any) }
	for name, test := range map[string]struct {
		change func(*fakeMayastor)
		want   string // nothing if there is to be no count
	}{
		"dead": {func(f *fakeMayastor) {
			state(f)["status"] = "Unknown"
			delete(state(f), "target")
			spec(f)["target"] = map[string]any{"node": "node-1"}
		}, "0"},
		"shut down": {func(f *fakeMayastor) { state(f)["target"].(map[string]any)["state"] = "Shutdown" }, "0"},
		"not published": {func(f *fakeMayastor) {
			delete(state(f), "target")
			delete(spec(f), "target")
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := startMayastor(t, mayastorAnswers(t, true, "127.0.0.1:1"))
			registry := mayastorRegistry(t, f, "mayastor")
			await(t, registry, healthy+"1")
			f.set(func() { test.change(f) })
			if test.want != "" {
				await(t, registry, healthy+test.want, `plumbline_openebs_volume_target_info{backend="mayastor",node="node-1",volume="pvc-vol-a"} 1`)
				return
			}
			testkit.Eventually(t, testkit.DefaultTimeout, func() error {
				if strings.Contains(exposition.Text(t, registry), "\n"+healthy) {
					return fmt.Errorf("%sis there", healthy)
				}
				return nil
			})
		})
	}
}

// io-engine reports why a child is out and how its rebuild proceeds. A node that returns garbage or nothing loses its
// own series only.
func TestIOEngine(t *testing.T) {
	good, bad := startIOEngine(t), startIOEngine(t)
	const uri = "nvmf://10.1.0.6:8420/nqn.2019-05.io.openebs:rep-b?uuid=rep-b"
	good.nexuses = message(1, message(1, "vol-a", 2, "nexus-a",
		5, message(1, "bdev:///rep-a?uuid=rep-a", 2, 1, 4, -1),
		5, message(1, uri, 2, 2, 3, 8, 4, 40),
		5, message(1, "bdev:///rep-c?uuid=rep-c", 2, 3, 3, 99)))
	good.stats[uri] = message(1, 1000, 2, 400, 3, 40, 5, 512, 8, 100, 9, 600, 10, 1)
	bad.nexuses = []byte{0x0a, 0xff}
	answers := mayastorAnswers(t, true, good.endpoint)
	second := clone(answers["/nodes"].([]any)[0]).(map[string]any)
	second["id"] = "node-2"
	second["state"].(map[string]any)["grpcEndpoint"] = bad.endpoint
	answers["/nodes"] = append(answers["/nodes"].([]any), second)
	f := startMayastor(t, answers)
	registry := mayastorRegistry(t, f, "ioengine")
	await(t, registry,
		`plumbline_openebs_ioengine_up{node="node-1"} 1`,
		`plumbline_openebs_ioengine_up{node="node-2"} 0`,
		`plumbline_openebs_ioengine_errors_total{node="node-1",reason="answer"} 0`,
		`plumbline_openebs_child_state_reason{reason="out_of_sync",replica="rep-b",volume="pvc-vol-a"} 1`,
		`plumbline_openebs_child_state_reason{reason="unknown_99",replica="rep-c",volume="pvc-vol-a"} 1`,
		`plumbline_openebs_rebuild_bytes{replica="rep-b",volume="pvc-vol-a"} 512000`,
		`plumbline_openebs_rebuild_recovered_bytes{replica="rep-b",volume="pvc-vol-a"} 204800`,
		`plumbline_openebs_rebuild_transferred_bytes{replica="rep-b",volume="pvc-vol-a"} 51200`,
		`plumbline_openebs_rebuild_partial{replica="rep-b",volume="pvc-vol-a"} 1`)
	if strings.Contains(exposition.Text(t, registry), `plumbline_openebs_ioengine_errors_total{node="node-2",reason="answer"} 0`) {
		t.Error("nonsense of node-2 is not counted")
	}
	good.mu.Lock()
	good.stats[uri] = message(1, 10, 2, 400, 5, 512) // more done than there is
	good.mu.Unlock()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if text := exposition.Text(t, registry); strings.Contains(text, "plumbline_openebs_rebuild_recovered_bytes{") {
			return fmt.Errorf("a rebuild with more done than there is has a number")
		}
		return nil
	})
}

// After a failover a volume may have its old nexus, too: one that is shut down has no series, and of two that serve it is
// always the same one's.
func TestIOEngineOldNexus(t *testing.T) {
	const uri = "nvmf://10.1.0.6:8420/nqn.2019-05.io.openebs:rep-b?uuid=rep-b"
	for name, test := range map[string]struct {
		states [2]int // of the nexuses on node-1 and node-2
		want   string // how much is recovered
	}{
		"the first is shut down":       {[2]int{5, 2}, "200"},
		"the first is shutting down":   {[2]int{4, 2}, "200"},
		"the second is shut down":      {[2]int{2, 5}, "100"},
		"neither is shut down, as yet": {[2]int{2, 2}, "100"},
	} {
		t.Run(name, func(t *testing.T) {
			answers := mayastorAnswers(t, true, "")
			var nodes []any
			for i, state := range test.states {
				engine := startIOEngine(t)
				engine.nexuses = message(1, message(1, "vol-a", 2, "nexus", 4, state, 5, message(1, uri, 2, 2, 3, 8)))
				engine.stats[uri] = message(1, 1000, 2, 100*(i+1), 5, 1)
				node := clone(answers["/nodes"].([]any)[0]).(map[string]any)
				node["id"] = fmt.Sprint("node-", i+1)
				node["state"].(map[string]any)["grpcEndpoint"] = engine.endpoint
				nodes = append(nodes, node)
			}
			answers["/nodes"] = nodes
			registry := mayastorRegistry(t, startMayastor(t, answers), "ioengine")
			await(t, registry, `plumbline_openebs_ioengine_up{node="node-1"} 1`, `plumbline_openebs_ioengine_up{node="node-2"} 1`)
			for range 20 {
				if text := exposition.Text(t, registry); !strings.Contains(text, `plumbline_openebs_rebuild_recovered_bytes{replica="rep-b",volume="pvc-vol-a"} `+test.want+"\n") {
					t.Fatalf("want %s recovered\n%s", test.want, text)
				}
			}
		})
	}
}

func FuzzNexusList(f *testing.F) {
	f.Add(message(1, message(1, "vol", 2, "nexus", 5, message(1, "uri", 2, 1, 4, -1))))
	f.Fuzz(func(t *testing.T, raw []byte) {
		list, err := parseNexusList(raw)
		if err == nil && len(raw) == 0 && len(list) > 0 {
			t.Error("nexuses from nothing")
		}
		parseRebuildStats(raw)
	})
}

// mayastorAnswers are two volumes, one with a target and a replica, from the schemas.
func mayastorAnswers(t *testing.T, full bool, endpoint string) map[string]any {
	t.Helper()
	sample := func(schema string, hints map[string]any) any {
		all := map[string]any{"node": "node-1", "pool": "pool-1", "id": "pool-1", "disks": []any{"aio:///dev/disk/by-id/d1?blk_size=512"},
			"devname": "/dev/sdb1", "parent": "/dev/sdb", "devlinks": []any{"/dev/disk/by-id/d1"}, "grpcEndpoint": endpoint,
			"uri": "nvmf://10.1.0.5:8420/nqn.2019-05.io.openebs:rep-a?uuid=rep-a", "rebuild-progress": 40, "rebuilds": 1, "num_replicas": 2}
		for k, v := range hints {
			all[k] = v
		}
		return newSampler(t, full, all).of(schema)
	}
	a := sample("Volume", map[string]any{"uuid": "vol-a", "replica_topology": "rep-a"})
	b := sample("Volume", map[string]any{"uuid": "vol-b", "replica_topology": "rep-b"})
	for name, v := range map[string]any{"vol-a": a, "vol-b": b} {
		// The published schema requires fields of a specification that it does not define,
		// and does not require the uuid's owner; both are always there.
		v.(map[string]any)["spec"].(map[string]any)["uuid"] = name
	}
	return map[string]any{
		"/volumes":                    map[string]any{"entries": []any{a, b}},
		"/pools":                      []any{sample("Pool", nil)},
		"/nodes":                      []any{sample("Node", map[string]any{"id": "node-1"})},
		"/replicas":                   []any{sample("Replica", map[string]any{"uuid": "rep-a"})},
		"/nodes/node-1/block_devices": []any{sample("BlockDevice", nil)},
	}
}

func volume(f *fakeMayastor, n int) map[string]any {
	return f.answers["/volumes"].(map[string]any)["entries"].([]any)[n].(map[string]any)
}

func replica(f *fakeMayastor, n int) map[string]any {
	for _, r := range volume(f, n)["state"].(map[string]any)["replica_topology"].(map[string]any) {
		return r.(map[string]any)
	}
	return nil
}

func clone(v any) any {
	raw, _ := json.Marshal(v)
	var copied any
	json.Unmarshal(raw, &copied)
	return copied
}

// mayastorRegistry runs one collector against a fake.
func mayastorRegistry(t *testing.T, f *fakeMayastor, name string) *prometheus.Registry {
	t.Helper()
	return registryWithTimeout(t, f, testkit.DefaultTimeout, name)
}

// registryWithTimeout is mayastorRegistry for a fake that does not answer in time.
func registryWithTimeout(t *testing.T, f *fakeMayastor, timeout time.Duration, name string) *prometheus.Registry {
	t.Helper()
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "node-1", RootFS: "/", Mayastor: f.url,
		Interval: 50 * time.Millisecond, Timeout: timeout}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return registryOf(t, ctx, o, name)
}

func registryOf(t *testing.T, ctx context.Context, o Options, names ...string) *prometheus.Registry {
	t.Helper()
	set := exporterkit.NewSetWithTimeout(o.Log, testkit.DefaultTimeout)
	for _, e := range All() {
		for _, name := range names {
			if e.Name != name {
				continue
			}
			c := e.New(o)
			if err := c.Start(ctx); err != nil {
				t.Fatal(err)
			}
			set.Add(name, c)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	return registry
}

// await waits for lines, or beginnings of lines, in the exposition.
func await(t *testing.T, registry *prometheus.Registry, lines ...string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		text := "\n" + exposition.Text(t, registry)
		for _, line := range lines {
			if !strings.Contains(text, "\n"+line) {
				return fmt.Errorf("no line %s", line)
			}
		}
		return nil
	})
}

// volatile are families whose values differ from run to run.
var volatile = []string{"plumbline_scrape_collector_duration_seconds", "plumbline_kubernetes_requests_total",
	"plumbline_kubernetes_unknown_values_total", "plumbline_kubernetes_errors_total"}
