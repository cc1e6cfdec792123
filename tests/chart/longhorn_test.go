package chart

import (
	"slices"
	"testing"
)

// TestLonghornNamespace checks that both of Longhorn's exporters look for its objects where the value says that they are.
func TestLonghornNamespace(t *testing.T) {
	for want, values := range map[string][]string{
		"longhorn-system": {registry, "longhorn.enabled=true"},
		"lh":              matrix["longhorn"],
	} {
		all := pods(t, values...)
		for _, name := range []string{"Deployment/longhorn-exporter", "DaemonSet/longhorn-node-exporter"} {
			pod, ok := all[name]
			if !ok {
				t.Fatalf("the chart makes no %s", name)
			}
			if args := pod.Containers[0].Args; !slices.Contains(args, "--kubernetes.namespace="+want) {
				t.Errorf("%s does not look in %s: its arguments are %q", name, want, args)
			}
		}
	}
}
