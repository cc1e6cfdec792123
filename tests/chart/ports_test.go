package chart

import (
	"slices"
	"testing"

	"github.com/plumbline/plumbline/tests/kubetest"
)

// TestAPIServerPorts checks that the exporters with an account are let out to the API server's ports, which a value names.
func TestAPIServerPorts(t *testing.T) {
	for _, c := range []struct {
		values []string
		want   []int32
	}{
		{matrix["every engine"], kubetest.APIServerPorts},
		{append(matrix["every engine"], "networkPolicies.apiServerPorts={6444,9443}"), []int32{6444, 9443}},
	} {
		objects, text, err := template(t, c.values...)
		if err != nil {
			t.Fatal(text)
		}
		seen := 0
		for _, o := range objects {
			if o.GetKind() == "NetworkPolicy" && slices.Contains([]string{"plumbline-agent", "longhorn-node-exporter", "longhorn-exporter", "openebs-exporter"}, o.GetName()) {
				seen++
				kubetest.CheckAPIServerPorts(t, o, c.want...)
			}
		}
		if seen != 4 {
			t.Errorf("%d policies of exporters with an account, want 4", seen)
		}
	}
}

// TestNoAPIServerPorts checks that an empty list of ports, which a network policy takes for every port, is refused.
func TestNoAPIServerPorts(t *testing.T) {
	refusesJSON(t, "networkPolicies.apiServerPorts=[]", "'/networkPolicies/apiServerPorts': minItems")
}
