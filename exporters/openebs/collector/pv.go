package collector

import (
	"maps"
	"slices"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// persistentVolume is what is read of a PersistentVolume.
type persistentVolume struct {
	volumeMeta `json:"metadata"`
	Spec       struct {
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

type volumeMeta struct {
	kube.Meta
	Labels struct {
		// Kind is set by the hostpath provisioner on its volumes: "local-hostpath" (dynamic-localpv-provisioner).
		Kind string `json:"openebs.io/cas-type"`
	} `json:"labels"`
}

// placed is what is kept of a PersistentVolume of one of OpenEBS' engines.
type placed struct {
	driver, handle string // of CSI; empty for hostpath
	path           string // of hostpath
	label, node    string // a label of the one node it can be used on, and its value
	bound          bool
}

// Odd implements kube.Object.
func (*persistentVolume) Odd() string { return "" }

// Odd implements kube.Object.
func (*placed) Odd() string { return "" }

// Shared implements kube's sharing of texts.
func (p *placed) Shared() []*string { return []*string{&p.driver, &p.label, &p.node} }

// keep returns what is kept of the volume; nil if it is no engine's of OpenEBS that names its volumes by it.
func (v *persistentVolume) keep() kube.Object {
	p := &placed{bound: v.Status.Phase == "Bound"}
	switch csi := v.Spec.CSI; {
	case csi != nil && slices.Contains([]string{lvmDriver, zfsDriver, mayastorDriver}, csi.Driver):
		p.driver, p.handle = csi.Driver, csi.Handle
		if p.handle == v.Name {
			p.handle = v.Name // one text for both
		}
	case v.Spec.Local != nil && v.Labels.Kind == "local-hostpath":
		p.path = v.Spec.Local.Path
		p.label, p.node = v.node()
	default:
		return nil
	}
	return p
}

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

// followVolumes makes PersistentVolumes known; more than one collector may call it.
func followVolumes(o *kube.Objects) {
	kube.Follow(o, kube.Kind{Versions: []string{"v1"}, Resource: "persistentvolumes"}, (*persistentVolume).keep)
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
		volumes := kube.All[*placed](o, "persistentvolumes")
		for _, name := range slices.Sorted(maps.Keys(volumes)) {
			v := volumes[name]
			if v.driver != mayastorDriver {
				continue
			}
			first, taken := names[v.handle]
			if !taken || !volumes[first].bound && v.bound {
				names[v.handle] = name
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
