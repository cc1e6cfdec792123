package kubernetes_test

import (
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestPoliciesAllowAPIServer checks that the exporters with an account reach the API server of each usual distribution.
func TestPoliciesAllowAPIServer(t *testing.T) {
	for policy, dir := range map[string]string{"plumbline-agent": "base/agent", "longhorn-node-exporter": "engines/longhorn/node",
		"longhorn-exporter": "engines/longhorn/cluster", "openebs-exporter": "engines/openebs"} {
		objects, err := render(manifests(dir))
		if err != nil {
			t.Fatal(err)
		}
		kubetest.CheckAPIServerPorts(t, find(t, objects, "NetworkPolicy", policy), kubetest.APIServerPorts...)
	}
}
