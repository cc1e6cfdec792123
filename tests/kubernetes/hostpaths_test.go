package kubernetes_test

import (
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestHostPaths checks that a file system which the node mounts below a path of the host's, or takes off there, is seen by a
// pod that runs already.
func TestHostPaths(t *testing.T) {
	seen := 0
	for name, objects := range everything(t) {
		for _, o := range objects {
			found := template(o)
			if found == nil {
				continue
			}
			var pod core.Pod
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, &pod); err != nil {
				t.Fatal(err)
			}
			paths := map[string]string{}
			for _, v := range pod.Spec.Volumes {
				if v.HostPath != nil {
					paths[v.Name] = v.HostPath.Path
				}
			}
			for _, c := range pod.Spec.Containers {
				for _, m := range c.VolumeMounts {
					if paths[m.Name] == "" {
						continue
					}
					seen++
					if m.MountPropagation == nil || *m.MountPropagation != core.MountPropagationHostToContainer {
						t.Errorf("%s: %s %s: what is mounted below %s later is not seen: its mount lacks mountPropagation HostToContainer",
							name, o.GetKind(), o.GetName(), paths[m.Name])
					}
				}
			}
		}
	}
	if seen == 0 {
		t.Error("nothing mounts a path of the host's")
	}
}
