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

// The manager in its target's own pod writes a volume's state, its pool's manager a replica's. The last state that a
// dead manager wrote is not exposed as current, and a volume whose target is dead has no replica that takes part in
// reads and writes.
func TestTargetIsDead(t *testing.T) {
	const (
		state   = `plumbline_openebs_volume_state{backend="cstor",state=%q,volume="vol"} 1`
		healthy = `plumbline_volume_healthy_replicas{backend="cstor",volume="vol"} `
		desired = `plumbline_volume_desired_replicas{backend="cstor",volume="vol"} 2`
		written = `plumbline_openebs_volume_status_timestamp_seconds{backend="cstor",volume="vol"} `
		success = `plumbline_scrape_collector_success{collector="cstor"} `
	)
	ago := func(d time.Duration) string { return time.Now().Add(-d).UTC().Format(time.RFC3339) }
	now, old := ago(30*time.Second), ago(5*time.Minute)
	healthyOf := func(updated any) []any { return []any{"Healthy", updated, "Healthy", updated} }
	for name, test := range map[string]struct {
		phase         string
		updated       any
		replicas      []any // phase and time of each
		known, timely bool  // whether there is a state, and a time
		count         string
		fails         bool
	}{
		"lives":                {"Healthy", now, healthyOf(now), true, true, "2", false},
		"dead":                 {"Healthy", old, []any{"Offline", now, "Offline", now}, false, true, "0", false},
		"dead with its node":   {"Healthy", old, []any{"Healthy", old, "Offline", now}, false, true, "0", false},
		"dead when degraded":   {"Degraded", old, []any{"Offline", now, "Offline", now}, false, true, "0", false},
		"only its manager is":  {"Healthy", old, []any{"Healthy", now, "Degraded", now}, false, true, "1", false},
		"no answer":            {"Error", now, []any{"Offline", now, "Offline", now}, true, true, "0", false},
		"a late answer":        {"Error", now, healthyOf(now), true, true, "2", false},
		"no replica connected": {"Init", now, []any{"Offline", now, "Offline", now}, true, true, "0", false},
		"new":                  {"Init", now, []any{"Init", now, "", nil}, true, true, "", false},
		"too few replicas":     {"Offline", now, []any{"Healthy", now, "Offline", now}, true, true, "0", false},
		"of a time unknown":    {"Healthy", nil, healthyOf(nil), true, false, "2", false},
		"of no time":           {"Healthy", "yesterday", healthyOf("yesterday"), true, false, "2", false},
		// The API server does not answer, or the clock is wrong: known states stay.
		"all are old":            {"Healthy", old, healthyOf(old), true, true, "2", true},
		"all are old, no answer": {"Error", old, []any{"Healthy", old, "Offline", old}, true, true, "1", true},
		"no replicas":            {"Error", now, nil, true, true, "", false},
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
			for i := 0; i < len(test.replicas); i += 2 {
				o.Objects.Put("cstorvolumereplicas", &unstructured.Unstructured{Object: map[string]any{
					"metadata": map[string]any{"name": fmt.Sprint("vol-", i), "labels": map[string]any{"openebs.io/persistent-volume": "vol"}},
					"status":   map[string]any{"phase": test.replicas[i], "lastUpdateTime": test.replicas[i+1]},
				}})
			}
			text := exposition.Text(t, registry)
			if test.count == "" && strings.Contains(text, "\n"+healthy) {
				t.Errorf("healthy replicas are counted that nothing reports:\n%s", text)
			}
			for line, want := range map[string]bool{
				fmt.Sprintf(state, test.phase): test.known, written: test.timely, desired: true,
				healthy + test.count: test.count != "", success + "0": test.fails, success + "1": !test.fails,
			} {
				if strings.Contains(text, "\n"+line) != want {
					t.Errorf("%q is there: %v\n%s", line, !want, text)
				}
			}
		})
	}
}

// The clock of the machine that writes a status may be ahead of this one's: what is not written again is old all the same,
// and what is written again is not.
func TestStatusOfTheFuture(t *testing.T) {
	start := time.Now()
	ahead := func(d time.Duration) string { return start.Add(time.Hour + d).UTC().Format(time.RFC3339) }
	dead, lives := &cstorVolume{}, &cstorVolume{}
	dead.Status.Updated = ahead(0)
	volumes := map[string]*cstorVolume{"dead": dead, "lives": lives}
	var ages cstorAges
	for second := 0; second <= 120; second += 30 {
		at := time.Duration(second) * time.Second
		lives.Status.Updated = ahead(at)
		ages = ages.next(start.Add(at), volumes, nil)
		if got, want := ages.stale(dead.seen("dead")), at > cstorStale; got != want {
			t.Errorf("after %s it is stale: %v", at, got)
		}
		if ages.stale(lives.seen("lives")) || ages.silent(volumes, nil) != nil {
			t.Errorf("after %s one that is written is stale, or all are: %v", at, ages.silent(volumes, nil))
		}
	}
	if ages = ages.next(start.Add(time.Hour), map[string]*cstorVolume{"lives": lives}, nil); len(ages.since) != 1 {
		t.Errorf("what is gone is remembered: %v", ages.since)
	}
}
