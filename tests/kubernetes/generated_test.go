package kubernetes_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/plumbline/plumbline/tests/testkit"
)

// TestGenerated checks that the objects of rules and dashboards, and the values for Alertmanager,
// are those that their sources make now, and that promtool takes the rules as they come out of the objects.
func TestGenerated(t *testing.T) {
	out := filepath.Join(t.TempDir(), "base")
	cmd := exec.Command("go", "run", "./manifests/kubernetes/generate", "-root", ".", "-out", out)
	cmd.Dir = testkit.Root()
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	for _, path := range []string{"rules", "../optional", "dashboards", "../kube-prometheus-stack/alertmanager.yaml"} {
		if text, err := exec.Command("diff", "-r", "--exclude=drop-unread", "--exclude=trace", filepath.Join(out, path), manifests("base", path)).CombinedOutput(); err != nil {
			t.Errorf("`go generate ./manifests/kubernetes/generate` changes base/%s:\n%.2000s", path, text)
		}
	}
	promtool := testkit.Tool(t, "promtool")
	sources, _ := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	objects, err := render(out + "/rules")
	if err != nil {
		t.Fatal(err)
	}
	if len(sources) == 0 || len(objects) != len(sources) {
		t.Errorf("%d rules files make %d objects", len(sources), len(objects))
	}
	for _, o := range objects {
		text, err := yaml.Marshal(o.Object["spec"])
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "rules.yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command(promtool, "check", "rules", file).CombinedOutput(); err != nil {
			t.Errorf("%s: %s", o.GetName(), text)
		}
	}
}
