package kubetest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/plumbline/plumbline/tests/testkit"
)

// ModuleCRDs returns the custom resource definitions in the files that match pattern, below
// the Go module in the version that tools/<folder> pins. The go command fetches the module if
// it is not there.
func ModuleCRDs(t testing.TB, folder, module, pattern string) []*unstructured.Unstructured {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = filepath.Join(testkit.Root(), "tools", folder)
	var errors strings.Builder
	cmd.Stderr = &errors
	output, err := cmd.Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(output, &answer) != nil || err != nil || answer.Dir == "" {
		t.Fatalf("module %s: %v %s%s", module, err, answer.Error, errors.String())
	}
	files, _ := filepath.Glob(filepath.Join(answer.Dir, pattern))
	var crds []*unstructured.Unstructured
	for _, file := range files {
		for _, o := range Read(t, file) {
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
