package kubetest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/world"
)

// Modules are the Go modules whose definitions of custom resources tests apply, by the folder of tools that pins them.
var Modules = map[string]struct {
	Path string
	crds string // a pattern of files
}{
	"prometheus-operator":   {"github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml"},
	"longhorn-manager":      {"github.com/longhorn/longhorn-manager", "k8s/crds.yaml"},
	"longhorn-manager-1.11": {"github.com/longhorn/longhorn-manager", "k8s/crds.yaml"},
	"cloudnative-pg":        {"github.com/cloudnative-pg/cloudnative-pg", "config/crd/bases/*.yaml"},
}

// Fetch fetches some of Modules, if a package's TestMain calls it before world.Main: within a world no registry can be
// reached. What cannot be fetched fails the test that needs it.
func Fetch(folders ...string) {
	if world.Inside() {
		return
	}
	for _, folder := range folders {
		if _, err := Module(folder); err != nil {
			fmt.Fprintln(os.Stderr, "kubetest:", err)
		}
	}
}

// Module returns the folder of one of Modules. The go command fetches the module if it is not in its cache.
func Module(folder string) (string, error) {
	module := Modules[folder].Path
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(testkit.Root(), "tools", folder)
	var log strings.Builder
	cmd.Stderr = &log
	output, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(output, &answer) != nil || err != nil || answer.Dir == "" {
		return "", fmt.Errorf("module %s of tools/%s: %v %s%s", module, folder, err, answer.Error, log.String())
	}
	return answer.Dir, nil
}

// action is a template's: later versions of Longhorn have the labels of their definitions by one.
var action = regexp.MustCompile(`\{\{.*?\}\}`)

// ModuleCRDs returns the custom resource definitions of one of Modules.
func ModuleCRDs(t testing.TB, folder string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := Module(folder)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, Modules[folder].crds))
	var crds []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		plain := filepath.Join(t.TempDir(), filepath.Base(file))
		if err := os.WriteFile(plain, action.ReplaceAll(text, nil), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, o := range Read(t, plain) {
			if o.GetKind() == "CustomResourceDefinition" {
				crds = append(crds, o)
			}
		}
	}
	if len(crds) == 0 {
		t.Fatalf("%s has no definitions %s", dir, Modules[folder].crds)
	}
	return crds
}
