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
)

// Module returns the folder of a Go module in the version that tools/<folder> pins. The go
// command fetches the module if it is not in its cache: a test that runs where no registry can
// be reached calls this before it goes there.
func Module(folder, module string) (string, error) {
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(testkit.Root(), "tools", folder)
	var said strings.Builder
	cmd.Stderr = &said
	output, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(output, &answer) != nil || err != nil || answer.Dir == "" {
		return "", fmt.Errorf("module %s of tools/%s: %v %s%s", module, folder, err, answer.Error, said.String())
	}
	return answer.Dir, nil
}

// action is a template's: later versions of Longhorn have the labels of their definitions by one.
var action = regexp.MustCompile(`\{\{.*?\}\}`)

// ModuleCRDs returns the custom resource definitions in the files that match pattern, below
// the Go module in the version that tools/<folder> pins.
func ModuleCRDs(t testing.TB, folder, module, pattern string) []*unstructured.Unstructured {
	t.Helper()
	dir, err := Module(folder, module)
	if err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, pattern))
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
		t.Fatalf("module %s: no definitions in %s", module, pattern)
	}
	return crds
}
