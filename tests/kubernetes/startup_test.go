package kubernetes_test

import (
	"reflect"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// startsIn is how long a program may take until it listens, on a node without CPU to spare.
const startsIn = 5 * time.Minute

// TestStartup checks that the kubelet does not end a program which loads programs into the kernel before it has started:
// these listen only when all are loaded.
func TestStartup(t *testing.T) {
	objects, err := render(manifests("base"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plumbline-agent", "plumbline-blockio"} {
		var set apps.DaemonSet
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(find(t, objects, "DaemonSet", name).Object, &set); err != nil {
			t.Fatal(err)
		}
		container := set.Spec.Template.Spec.Containers[0]
		if container.LivenessProbe == nil {
			t.Errorf("%s has no livenessProbe", name)
			continue
		}
		if err := waits(container); err != "" {
			t.Errorf("%s: %s", name, err)
		}
	}
}

// waits says why a container's livenessProbe may end it before it has started; empty if it may not.
func waits(c core.Container) string {
	startup := c.StartupProbe
	switch {
	case startup == nil:
		return "it has no startupProbe"
	case !reflect.DeepEqual(startup.ProbeHandler, c.LivenessProbe.ProbeHandler):
		return "its startupProbe asks for something else than its livenessProbe"
	}
	if d := time.Duration(startup.PeriodSeconds) * time.Second * time.Duration(startup.FailureThreshold); d < startsIn {
		return "its startupProbe gives it " + d.String() + " only"
	}
	return ""
}
