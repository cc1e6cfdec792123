package collector

import (
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
						Key      string   `json:"key"`
						Operator string   `json:"operator"`
						Values   []string `json:"values"`
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
	driver, handle string      // of CSI; empty for hostpath
	path           string      // of hostpath
	on             []nodeLabel // labels of the one node it can be used on
	bound          bool
}

// UnknownValue implements kube.Object.
func (*persistentVolume) UnknownValue() string { return "" }

// UnknownValue implements kube.Object.
func (*placed) UnknownValue() string { return "" }

// Shared implements kube's sharing of texts.
func (p *placed) Shared() []*string { return append(sharedLabels(p.on), &p.driver) }

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
		p.on = v.on()
	default:
		return nil
	}
	return p
}

// maxAffinity bounds the labels that are kept of a volume's node.
const maxAffinity = 4

// on returns labels of the one node the volume can be used on: the one of nodeLabels that its affinity names, else all,
// as an administrator may have chosen another (the provisioner's NodeAffinityLabels). There are none if there are several
// nodes.
func (v *persistentVolume) on() (labels []nodeLabel) {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return nil
	}
	terms := v.Spec.NodeAffinity.Required.Terms
	for _, term := range terms {
		for _, e := range term.Expressions {
			switch {
			case len(e.Values) != 1:
			case slices.Contains(nodeLabels, e.Key):
				return []nodeLabel{{e.Key, e.Values[0]}}
			case e.Operator == "In" && len(terms) == 1 && len(labels) < maxAffinity:
				labels = append(labels, nodeLabel{e.Key, e.Values[0]})
			}
		}
	}
	return labels
}

// followVolumes makes PersistentVolumes known; more than one collector may call it.
func followVolumes(o *kube.Objects) {
	kube.Follow(o, kube.Kind{Versions: []string{"v1"}, Resource: "persistentvolumes"}, (*persistentVolume).keep)
}

// mayastorDriver is the CSI driver whose handles are Mayastor's volume UUIDs.
const mayastorDriver = "io.openebs.csi-mayastor"

// handled returns, by driver and handle, the name of the PersistentVolume that a CSI volume has. Of several, as after one was
// made anew by hand, it is always the same: one that is bound, else any, and of these the first by name.
func handled(volumes map[string]*placed) map[[2]string]string {
	names := map[[2]string]string{}
	for name, v := range volumes {
		key := [2]string{v.driver, v.handle}
		first, taken := names[key]
		if v.driver != "" && (!taken || v.bound && !volumes[first].bound || v.bound == volumes[first].bound && name < first) {
			names[key] = name
		}
	}
	return names
}

// volumeNames returns a function from Mayastor's UUID of a volume to the name of its PersistentVolume: the one that the API
// server knows, else the one that dynamic provisioning gives.
func volumeNames(o *kube.Objects) func(uuid string) string {
	var names map[[2]string]string
	if o != nil {
		names = handled(kube.All[*placed](o, "persistentvolumes"))
	}
	return func(uuid string) string {
		if name := names[[2]string{mayastorDriver, uuid}]; name != "" {
			return name
		}
		return "pvc-" + uuid
	}
}
