package kubernetes_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// recorded fails unless the record says this.
func (d *deployment) recorded(key, want string) {
	d.t.Helper()
	record := d.get(configMaps, "plumbline", "plumbline-deploy")
	if record == nil {
		d.t.Error("no record")
		return
	}
	if got, _, _ := unstructured.NestedString(record.Object, "data", key); got != want {
		d.t.Errorf("recorded %s is %q, want %q", key, got, want)
	}
}

// TestDeployFailed has up fail at some objects: it says what to do, and what it made is recorded all the same, so that down
// removes it.
func TestDeployFailed(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	registry := "REGISTRY=registry.example.org/plumbline"
	// Longhorn's exporters without Longhorn.
	longhorn := []string{registry, "ENGINES=longhorn"}
	d.refused(longhorn, "up", "not everything was applied")
	d.recorded("engines", "longhorn")
	d.recorded("namespaces", "plumbline-node plumbline longhorn-system")
	d.up(manifests("deploy"), "ENGINES=none")

	controls := func(want string) {
		t.Helper()
		if got, _, _ := unstructured.NestedString(d.get(configMaps, "plumbline-node", "plumbline-controls").Object, "data", "classes"); got != want {
			t.Errorf("the controls are %q, want %q", got, want)
		}
	}
	controls("local-path")
	if text, err := d.run(nil, filepath.Join(d.path, "kubectl"), "patch", "configmap", "plumbline-controls", "--namespace=plumbline-node",
		"--field-manager=kubectl-edit", `--patch={"data":{"classes":"disk"}}`); err != nil {
		t.Fatal(text)
	}
	text, err := d.deploy([]string{registry, "TRACE=on"}, "up")
	if err == nil || strings.Contains(text, "not everything in plumbline-node runs") {
		t.Errorf("up over an edited object: %v\n%s", err, text)
	}
	says(t, text, `conflict with "kubectl-edit"`, ".data.classes", "ConfigMap plumbline-node/plumbline-controls", "FORCE=on")
	controls("disk")
	d.recorded("trace", "on")
	d.refused([]string{registry, "FORCE=yes"}, "up", "FORCE is yes: give on or off")
	d.up(manifests("deploy"), "FORCE=on")
	controls("local-path")

	d.refused(longhorn, "up", "not everything was applied")
	if text, err := d.deploy(nil, "down"); err != nil {
		t.Fatalf("down: %v\n%s", err, text)
	}
	d.has(false, daemonSets, "plumbline-node", "plumbline-agent")
	d.has(false, daemonSets, "plumbline-node", "longhorn-node-exporter")
}

// TestDeployDownAgain has down fail at a namespace: the record is still there, and the next down ends what it began.
func TestDeployDownAgain(t *testing.T) {
	t.Parallel()
	d := newDeployment(t)
	d.up(manifests("deploy"))
	bin := t.TempDir()
	wrapper := "#!/bin/sh\ncase \"$*\" in \"delete namespace plumbline-node\"*) echo no answer >&2; exit 1 ;; esac\nexec " + filepath.Join(d.path, "kubectl") + " \"$@\"\n"
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(wrapper), 0o755); err != nil {
		t.Fatal(err)
	}
	d.refused([]string{"PATH=" + bin + ":" + d.path + ":" + os.Getenv("PATH")}, "down", "no answer")
	d.has(true, configMaps, "plumbline", "plumbline-deploy")
	if text, err := d.deploy(nil, "down"); err != nil {
		t.Errorf("down again: %v\n%s", err, text)
	}
	d.has(false, configMaps, "plumbline", "plumbline-deploy")
	for _, name := range []string{"plumbline-node", "plumbline"} {
		if n := d.get(namespaceKind, "", name); n != nil && n.GetDeletionTimestamp() == nil {
			t.Errorf("the namespace %s stays", name)
		}
	}
}
