package kubetest

import (
	"encoding/json"
	"errors"
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

// modules are the Go modules of which tests use files, by the folder of tools that pins them.
var modules = map[string]struct {
	path string
	crds string // a pattern of files: its definitions of custom resources, if it has some
}{
	"prometheus-operator":       {"github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd/*.yaml"},
	"longhorn-manager":          {"github.com/longhorn/longhorn-manager", "k8s/crds.yaml"},
	"longhorn-manager-1.11":     {"github.com/longhorn/longhorn-manager", "k8s/crds.yaml"},
	"longhorn-instance-manager": {"github.com/longhorn/longhorn-instance-manager", ""},
	"cloudnative-pg":            {"github.com/cloudnative-pg/cloudnative-pg", "config/crd/bases/*.yaml"},
}

// Fetch fetches some of modules. A package's TestMain calls it before it goes where no registry can be reached, as to
// the namespaces of world.Main, within which it does nothing.
func Fetch(folders ...string) error {
	if world.Inside() {
		return nil
	}
	var problems []error
	for _, folder := range folders {
		_, err := Module(folder)
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// Module returns the folder of one of modules. The go command fetches the module if it is not in its cache.
func Module(folder string) (string, error) {
	module := modules[folder].path
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

// ModuleCRDs returns the custom resource definitions of one of modules.
func ModuleCRDs(t testing.TB, folder string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := Module(folder)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, modules[folder].crds))
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
		t.Fatalf("%s has no definitions %s", dir, modules[folder].crds)
	}
	return crds
}
