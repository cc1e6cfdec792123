package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDeployWithoutARecordedEngine runs up and down from a checkout that has no folder of an engine that was recorded: what was
// made for it goes, and the rest is as it was.
func TestDeployWithoutARecordedEngine(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	whole, without := checkout(t), checkout(t)
	if err := os.RemoveAll(filepath.Join(filepath.Dir(without), "engines", "longhorn")); err != nil {
		t.Fatal(err)
	}
	d.Namespace("longhorn-system")
	d.up(whole, "ENGINES=longhorn openebs")
	d.has(true, deployments, "plumbline", "longhorn-exporter")
	says(t, d.up(without), "The engine longhorn, which the last up recorded, is not in manifests/kubernetes/engines", "from a checkout that has it")
	d.recorded("engines", "openebs")
	d.has(false, deployments, "plumbline", "longhorn-exporter")
	d.has(false, roleBindings, "longhorn-system", "plumbline-longhorn-exporter")
	d.has(true, deployments, "plumbline", "openebs-exporter")
	if text := d.up(without); strings.Contains(text, "engine longhorn") {
		t.Errorf("up tells again of an engine that is gone:\n%s", text)
	}
	// One that is asked for is no such thing.
	if text, err := d.run([]string{"REGISTRY=registry.example.org/plumbline", "ENGINES=longhorn"}, without, "up"); err == nil || !strings.Contains(text, "no engine longhorn") {
		t.Errorf("up of an engine that is not there: %v\n%s", err, text)
	}
	d.up(whole, "ENGINES=longhorn")
	if text, err := d.run(nil, without, "down"); err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	d.has(false, deployments, "plumbline", "longhorn-exporter")
	d.has(false, roleBindings, "longhorn-system", "plumbline-longhorn-exporter")
}
