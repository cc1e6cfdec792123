package collector

import (
	"fmt"
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Of several PersistentVolumes of one Mayastor volume always the same one gives the name: the bound one, else the first
// by name.
func TestVolumeOfSeveralNames(t *testing.T) {
	for want, phases := range map[string]map[string]string{
		"pv-7": {"pv-1": "Released", "pv-3": "Available", "pv-7": "Bound", "pv-9": "Released"},
		"pv-4": {"pv-9": "Bound", "pv-4": "Bound", "pv-1": "Failed", "pv-6": "Bound"},
		"pv-2": {"pv-8": "Released", "pv-2": "Released", "pv-5": "Available", "pv-3": ""},
	} {
		objects, err := kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		followVolumes(objects)
		put := func(name, phase, driver string) {
			objects.Put("persistentvolumes", &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": name}, "status": map[string]any{"phase": phase},
				"spec": map[string]any{"csi": map[string]any{"driver": driver, "volumeHandle": "vol-a"}},
			}})
		}
		for name, phase := range phases {
			put(name, phase, mayastorDriver)
		}
		put("pv-0", "Bound", "another.driver")
		given := map[string]int{}
		for range 1000 {
			given[volumeNames(objects)("vol-a")]++
		}
		if fmt.Sprint(given) != fmt.Sprintf("map[%s:1000]", want) {
			t.Errorf("of %v the names given are %v, want %s", phases, given, want)
		}
		if name := volumeNames(objects)("vol-b"); name != "pvc-vol-b" {
			t.Errorf("a volume without a PersistentVolume is %s", name)
		}
	}
}
