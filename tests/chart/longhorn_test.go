package chart

import (
	"maps"
	"slices"
	"testing"

	core "k8s.io/api/core/v1"
)

// TestLonghornNamespace checks that both of Longhorn's exporters look for its objects in the namespace that the value
// names.
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

// TestLonghornDataPaths checks that no folder but Longhorn's own is made on a node that lacks it: a disk that is not
// mounted there would look as if it were.
func TestLonghornDataPaths(t *testing.T) {
	types := map[string]core.HostPathType{}
	for _, v := range pods(t, registry, "longhorn.enabled=true", "longhorn.dataPaths={/var/lib/longhorn/,/mnt/fast}")["DaemonSet/longhorn-node-exporter"].Volumes {
		if v.HostPath == nil || v.HostPath.Type == nil {
			t.Fatalf("the volume %s has no type, and the container runtime makes what is missing", v.Name)
		}
		types[v.HostPath.Path] = *v.HostPath.Type
	}
	want := map[string]core.HostPathType{"/var/lib/longhorn/": core.HostPathDirectoryOrCreate, "/mnt/fast": core.HostPathDirectory}
	if !maps.Equal(types, want) {
		t.Errorf("the paths are of the types %v, want %v", types, want)
	}
}
