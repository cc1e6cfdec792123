package alerting

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The text of a message has each alert's runbook and the command that explains it, by what its labels name. A server may
// have any name: in a command it is only one that a shell leaves alone.
func TestMessageHasTheCommand(t *testing.T) {
	t.Parallel()
	m := startManager(t)
	want := map[string]labels{
		"kubectl plumbline why data-0 -n shop --cluster=eu":   {"part_of": "plumbline", "persistentvolumeclaim": "data-0", "namespace": "shop", "volume": "pvc-1", "cluster": "eu"},
		"kubectl plumbline why server/shop/shop-1":            {"part_of": "plumbline", "server": "shop/shop-1", "node": "n"},
		"kubectl plumbline why volume/pvc-2":                  {"part_of": "plumbline", "volume": "pvc-2"},
		"kubectl plumbline status":                            {"part_of": "plumbline", "server": "x; reboot", "node": "n"},
		"Runbook: https://example.org/alert-of-somebody-else": {"server": "y"},
	}
	var alerts []any
	for text, l := range want {
		l["alertname"], l["severity"] = fmt.Sprintf("A%d", len(alerts)), "critical"
		runbook := "https://example.org/" + l["alertname"]
		if l["part_of"] == "" {
			_, runbook, _ = strings.Cut(text, " ")
		}
		alerts = append(alerts, map[string]any{"labels": l, "startsAt": time.Now(), "annotations": labels{
			"summary": "It is " + l["alertname"] + ".", "description": "So it is.", "runbook_url": runbook}})
	}
	if err := m.call(http.MethodPost, "/api/v2/alerts", alerts, nil); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		for text, l := range want {
			lines := []string{"It is " + l["alertname"] + ". So it is.", "Runbook: https://example.org/" + l["alertname"], text}
			if l["part_of"] == "" {
				lines = slices.Delete(lines, 1, 2)
			}
			if whole := strings.Join(lines, "\n"); !slices.ContainsFunc(m.texts, func(have string) bool { return strings.TrimSpace(have) == whole }) {
				return fmt.Errorf("%q is not among %q", whole, m.texts)
			}
		}
		return nil
	})
}
