package alerting

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// exposition is of a volume without good replicas, one that lost a replica and one that is being
// rebuilt.
const exposition = `plumbline_volume_info{volume="gone",node="n",device="sdb",namespace="db",persistentvolumeclaim="gone",storageclass="r3",backend="longhorn-v1"} 1
plumbline_volume_desired_replicas{volume="gone",backend="longhorn-v1"} 3
plumbline_volume_healthy_replicas{volume="gone",backend="longhorn-v1"} 0
plumbline_longhorn_engine_replica_mode{volume="gone",replica="r1",mode="ERR"} 1
plumbline_volume_info{volume="short",node="n",device="sdc",namespace="db",persistentvolumeclaim="short",storageclass="r3",backend="longhorn-v1"} 1
plumbline_volume_desired_replicas{volume="short",backend="longhorn-v1"} 3
plumbline_volume_healthy_replicas{volume="short",backend="longhorn-v1"} 2
plumbline_longhorn_engine_replica_mode{volume="short",replica="r2",mode="ERR"} 1
plumbline_volume_info{volume="rebuilt",node="n",device="sdd",namespace="db",persistentvolumeclaim="rebuilt",storageclass="r3",backend="longhorn-v1"} 1
plumbline_volume_desired_replicas{volume="rebuilt",backend="longhorn-v1"} 3
plumbline_volume_healthy_replicas{volume="rebuilt",backend="longhorn-v1"} 2
plumbline_longhorn_engine_replica_mode{volume="rebuilt",replica="r3",mode="ERR"} 1
plumbline_longhorn_replica_rebuilding{volume="rebuilt",replica="r3"} 1
`

// Alerts of a real Prometheus arrive where the example sends them: who must get up is called, what
// is a mere cause is not mailed, and what a larger one explains is not sent at all.
func TestRouting(t *testing.T) {
	t.Parallel()
	server := testkit.Tool(t, "prometheus")
	m := startManager(t)
	exporter := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		fmt.Fprint(w, exposition)
	}))
	t.Cleanup(exporter.Close)
	folder := t.TempDir()
	config := filepath.Join(folder, "prometheus.yml")
	text := fmt.Sprintf(`global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 5s}
rule_files: [%q]
scrape_configs:
  - {job_name: plumbline, static_configs: [{targets: [%q]}]}
alerting: {alertmanagers: [{static_configs: [{targets: [%q]}]}]}
`, filepath.Join(testkit.Root(), "rules", "*.rules.yaml"), strings.TrimPrefix(exporter.URL, "http://"), m.address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, exec.Command(server, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(folder, "data"), "--web.listen-address="+testkit.FreeAddress(t)))

	want := []struct {
		receiver string
		labels   labels
	}{
		{"page", labels{"alertname": "VolumeFaulted", "volume": "gone", "severity": "critical", "persistentvolumeclaim": "gone"}},
		{"dashboard", labels{"alertname": "ReplicaLost", "volume": "short", "replica": "r2", "severity": "info"}},
		{"dashboard", labels{"alertname": "VolumeRebuilding", "volume": "rebuilt", "severity": "info"}},
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for _, w := range want {
			if !m.sent(w.receiver, w.labels) {
				return fmt.Errorf("%s has not been sent %v", w.receiver, w.labels)
			}
		}
		return nil
	})
	for _, explained := range []labels{{"alertname": "ReplicaLost", "volume": "gone"}, {"alertname": "ReplicaLost", "volume": "rebuilt"}} {
		if m.sent("dashboard", explained) {
			t.Errorf("%v was sent, though another alert explains it", explained)
		}
	}
	if m.sent("ticket", nil) || m.sent("page", labels{"severity": "info"}) {
		t.Errorf("alerts went to the wrong receiver: %v", m.received)
	}
}

// Two incidents are two pages, whatever kind of thing they are of: who acknowledges one has not acknowledged the other.
func TestTwoIncidentsAreTwoPages(t *testing.T) {
	t.Parallel()
	all := fired(t)
	m := startManager(t)
	pages := map[string]bool{}
	for name, of := range all {
		first := of[0]
		if first["severity"] != "critical" {
			continue
		}
		pages[name] = true
		second := maps.Clone(first)
		for label := range second {
			if !slices.Contains([]string{"alertname", "severity", "part_of"}, label) {
				second[label] += "-2"
			}
		}
		m.post(t, first, second)
	}
	if len(pages) < 8 {
		t.Fatalf("only %d alerts page", len(pages))
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		var groups []struct {
			Receiver struct{ Name string }
			Alerts   []struct{ Labels labels }
		}
		if err := m.call(http.MethodGet, "/api/v2/alerts/groups", nil, &groups); err != nil {
			return err
		}
		n := map[string]int{}
		for _, g := range groups {
			if g.Receiver.Name == "page" {
				n[g.Alerts[0].Labels["alertname"]]++
			}
		}
		for name := range pages {
			if n[name] != 2 {
				return fmt.Errorf("two of %s, with no label in common, are %d pages", name, n[name])
			}
		}
		return nil
	})
}
