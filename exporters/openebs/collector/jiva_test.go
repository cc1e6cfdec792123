package collector

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// Two JivaVolumes that name one PersistentVolume do not take turns: the first by name is exposed, without the other's
// replicas.
func TestJivaVolumesOfOneName(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler)}
	var err error
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "jiva")
	for i := range 5 {
		o.Objects.Put("jivavolumes", &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": fmt.Sprint("jiva-", i)},
			"spec":     map[string]any{"pv": "pvc-jiva", "policy": map[string]any{"target": map[string]any{"replicationFactor": int64(i + 1)}}},
			"status":   map[string]any{"phase": "Ready", "replicaStatus": []any{map[string]any{"address": fmt.Sprintf("tcp://10.0.0.%d:9502", i), "mode": "RW"}}},
		}})
	}
	for range 50 {
		text := exposition.Text(t, registry)
		for _, want := range []string{
			`plumbline_volume_desired_replicas{backend="jiva",volume="pvc-jiva"} 1`,
			`plumbline_volume_healthy_replicas{backend="jiva",volume="pvc-jiva"} 1`,
			`plumbline_volume_replica_info{address="10.0.0.0:9502",backend="jiva",device="",node="",replica="10.0.0.0:9502",volume="pvc-jiva"} 1`,
			`plumbline_scrape_collector_dropped_series_total{collector="jiva"} 0`,
		} {
			if !strings.Contains(text, "\n"+want+"\n") {
				t.Fatalf("not the first volume's numbers, no %s in:\n%s", want, text)
			}
		}
		if n := strings.Count(text, "\nplumbline_volume_replica_info{"); n != 1 {
			t.Fatalf("%d replicas, want the first volume's one:\n%s", n, text)
		}
	}
}

// A volume whose controller is dead, or takes no writes any more, has no replica that takes part in reads and writes;
// one that is not made yet has no count.
func TestJivaControllerIsDead(t *testing.T) {
	const healthy = `plumbline_volume_healthy_replicas{backend="jiva",volume="pvc-jiva"} `
	good := []any{map[string]any{"address": "tcp://10.0.0.7:9502", "mode": "RW"}}
	for phase, test := range map[string]struct {
		replicas []any
		want     string
	}{
		"Ready": {good, "1"}, "Syncing": {good, "0"}, "Unknown": {nil, "0"}, "Pending": {nil, ""}, "Failed": {nil, ""},
	} {
		t.Run(phase, func(t *testing.T) {
			o := Options{Log: slog.New(slog.DiscardHandler)}
			var err error
			if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
				t.Fatal(err)
			}
			registry := registryOf(t, t.Context(), o, "jiva")
			o.Objects.Put("jivavolumes", &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "jiva-1"}, "spec": map[string]any{"pv": "pvc-jiva"},
				"status": map[string]any{"phase": phase, "replicaStatus": test.replicas},
			}})
			text := exposition.Text(t, registry)
			if !strings.Contains(text, `state="`+phase+`",volume="pvc-jiva"} 1`) {
				t.Errorf("phase %s is not reported:\n%s", phase, text)
			}
			if strings.Contains(text, "\n"+healthy) != (test.want != "") || !strings.Contains(text+"\n"+healthy, "\n"+healthy+test.want) {
				t.Errorf("want %q healthy replicas:\n%s", test.want, text)
			}
		})
	}
}
