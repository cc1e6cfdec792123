package collector

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// persistentVolume is what is read of a PersistentVolume.
type persistentVolume struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		CSI *struct {
			Driver string `json:"driver"`
			Handle string `json:"volumeHandle"`
		} `json:"csi"`
		Local *struct {
			Path string `json:"path"`
		} `json:"local"`
		NodeAffinity *struct {
			Required *struct {
				Terms []struct {
					Expressions []struct {
						Key    string   `json:"key"`
						Values []string `json:"values"`
					} `json:"matchExpressions"`
				} `json:"nodeSelectorTerms"`
			} `json:"required"`
		} `json:"nodeAffinity"`
	} `json:"spec"`
	Status struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

// Odd implements kube.Object.
func (*persistentVolume) Odd() string { return "" }

// node is a label of the one node the volume can be used on, and its value; empty if there are several.
func (v *persistentVolume) node() (label, value string) {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return "", ""
	}
	for _, term := range v.Spec.NodeAffinity.Required.Terms {
		for _, e := range term.Expressions {
			if slices.Contains(nodeLabels, e.Key) && len(e.Values) == 1 {
				return e.Key, e.Values[0]
			}
		}
	}
	return "", ""
}

// followVolumes makes PersistentVolumes known; more than one collector may ask for it.
func followVolumes(o *kube.Objects) {
	kube.Follow[persistentVolume](o, schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "")
}

// mayastorDriver is the CSI driver whose handles are Mayastor's volume UUIDs.
const mayastorDriver = "io.openebs.csi-mayastor"

// volumeNames returns a function from Mayastor's UUID of a volume to the name of its
// PersistentVolume: the one that the API server knows, else the one that dynamic
// provisioning gives. Of several, as after one was made anew by hand, it is always the same:
// one that is bound, else any, and of these the first by name.
func volumeNames(o *kube.Objects) func(uuid string) string {
	names := map[string]string{}
	if o != nil {
		volumes := kube.All[*persistentVolume](o, "persistentvolumes")
		for _, name := range slices.Sorted(maps.Keys(volumes)) {
			v := volumes[name]
			if v.Spec.CSI == nil || v.Spec.CSI.Driver != mayastorDriver {
				continue
			}
			first, taken := names[v.Spec.CSI.Handle]
			if !taken || !volumes[first].bound() && v.bound() {
				names[v.Spec.CSI.Handle] = name
			}
		}
	}
	return func(uuid string) string {
		if name := names[uuid]; name != "" {
			return name
		}
		return "pvc-" + uuid
	}
}

func (v *persistentVolume) bound() bool { return v.Status.Phase == "Bound" }
