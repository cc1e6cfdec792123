package kubernetes_test

import (
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestNodes checks that the programs on each node are started wherever they can run, and nowhere else.
func TestNodes(t *testing.T) {
	seen := map[string]bool{}
	for _, dir := range []string{"base", "engines/longhorn"} {
		objects, err := render(manifests(dir))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			if o.GetKind() == "DaemonSet" {
				seen[o.GetName()] = true
				kubetest.CheckNodes(t, o)
			}
		}
	}
	if len(seen) != 3 {
		t.Errorf("the programs on each node are %v, want three", seen)
	}
}
