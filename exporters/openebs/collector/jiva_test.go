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

// Two JivaVolumes that name one PersistentVolume do not take turns: the first by name is told of.
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
		}})
	}
	for range 50 {
		if text := exposition.Text(t, registry); !strings.Contains(text, `plumbline_volume_desired_replicas{backend="jiva",volume="pvc-jiva"} 1`+"\n") {
			t.Fatalf("not the first volume's replicas:\n%s", text)
		}
	}
}
