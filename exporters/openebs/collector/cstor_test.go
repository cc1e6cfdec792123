package collector

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// A volume's state is written by the manager in its target's own pod: what one wrote last that is dead now is not told of as if it held.
func TestTargetIsDead(t *testing.T) {
	const (
		state   = `plumbline_openebs_volume_state{backend="cstor",state=%q,volume="vol"} 1`
		healthy = `plumbline_volume_healthy_replicas{backend="cstor",volume="vol"} 2`
		desired = `plumbline_volume_desired_replicas{backend="cstor",volume="vol"} 2`
		written = `plumbline_openebs_volume_status_timestamp_seconds{backend="cstor",volume="vol"} `
	)
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	for name, test := range map[string]struct {
		phase                  string
		updated                any
		known, counted, timely bool // whether there is a state, a count of healthy replicas, and a time
	}{
		"lives":             {"Healthy", ago(30 * time.Second), true, true, true},
		"dead":              {"Healthy", ago(5 * time.Minute), false, false, true},
		"no answer":         {"Error", ago(30 * time.Second), true, false, true},
		"of a time unknown": {"Healthy", nil, true, true, false},
		"of no time":        {"Healthy", "yesterday", true, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			o := Options{Log: slog.New(slog.DiscardHandler)}
			var err error
			if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
				t.Fatal(err)
			}
			registry := registryOf(t, t.Context(), o, "cstor")
			replica := map[string]any{"mode": "Healthy"}
			o.Objects.Put("cstorvolumes", &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": "vol"}, "spec": map[string]any{"replicationFactor": int64(2)},
				"status": map[string]any{"phase": test.phase, "lastUpdateTime": test.updated, "replicaStatuses": []any{replica, replica}},
			}})
			text := exposition.Text(t, registry)
			for line, want := range map[string]bool{fmt.Sprintf(state, test.phase): test.known, healthy: test.counted, written: test.timely, desired: true} {
				if strings.Contains(text, "\n"+line) != want {
					t.Errorf("%s is there: %v\n%s", line, !want, text)
				}
			}
		})
	}
}
