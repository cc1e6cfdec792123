package collector

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

// Longhorn 1.5 and 1.6 name the engine by another field than later ones; each kind of object has it.
func TestEngineName(t *testing.T) {
	for field, want := range map[string]string{"dataEngine": BackendV2, "backendStoreDriver": BackendV2, "other": BackendV1} {
		o := map[string]any{"spec": map[string]any{field: "v2"}}
		var volume volumeObject
		var engine engineObject
		var replica replicaObject
		var manager managerObject
		for _, into := range []any{&volume, &engine, &replica, &manager} {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, into); err != nil {
				t.Fatal(err)
			}
		}
		for kind, got := range map[string]string{"volume": volume.Spec.engine(), "engine": engine.Spec.engine(), "replica": replica.Spec.engine(), "manager": manager.Spec.engine()} {
			if backendOf(got) != want {
				t.Errorf("the %s with %s is of %s, want %s", kind, field, backendOf(got), want)
			}
		}
	}
	unknown := volumeObject{}
	unknown.Spec.Driver = "v3"
	if unknown.UnknownValue() == "" || backendOf(unknown.Spec.engine()) != "longhorn-v3" {
		t.Error("an engine that nobody knows is not reported")
	}
}
