package volume

import (
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Kubernetes names volumes as the API server knows them: by the PersistentVolumes that are
// bound to a claim.
type Kubernetes struct {
	objects *kube.Objects
	node    string
}

// NewKubernetes returns a source of the volumes that may be used on node. It makes objects
// follow PersistentVolumes, so it must come before they are run.
func NewKubernetes(objects *kube.Objects, node string) *Kubernetes {
	kube.Follow[persistentVolume](objects, schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumes"}, "")
	return &Kubernetes{objects, node}
}

// Identities returns the bound volumes. Before the first list it knows none; trouble with the
// API server is counted by the connection's own metrics, and what was known stays.
func (k *Kubernetes) Identities() ([]Identity, error) {
	volumes := kube.All[*persistentVolume](k.objects, "persistentvolumes")
	var identities []Identity
	for _, name := range slices.Sorted(maps.Keys(volumes)) {
		if i, ok := volumes[name].identity(k.node); ok {
			identities = append(identities, i)
		}
	}
	return placeable(identities), nil
}

// placeable marks what is on another node by all that is known, if its folder is another volume's, too: which of them a container uses
// here cannot be told.
func placeable(identities []Identity) []Identity {
	volumes := map[string]int{} // by their folder
	for _, i := range identities {
		volumes[filepath.Clean(i.Directory)]++
	}
	for n, i := range identities {
		identities[n].ambiguous = i.elsewhere && volumes[filepath.Clean(i.Directory)] > 1
	}
	return identities
}

// persistentVolume is what is read of a PersistentVolume.
type persistentVolume struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              persistentVolumeSpec `json:"spec"`
	Status            struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type persistentVolumeSpec struct {
	StorageClass string `json:"storageClassName"`
	Claim        *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"claimRef"`
	CSI *struct {
		Driver     string            `json:"driver"`
		Handle     string            `json:"volumeHandle"`
		Attributes map[string]string `json:"volumeAttributes"`
	} `json:"csi"`
	HostPath *localPath `json:"hostPath"`
	Local    *localPath `json:"local"`
	Flex     *struct {
		Driver string `json:"driver"`
	} `json:"flexVolume"`
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
	// source is the field of the volume's source, whatever that is: csi, iscsi, nfs, awsElasticBlockStore, …
	source string
}

// notSources are the fields of a spec that are objects and no sources.
var notSources = map[string]bool{"capacity": true, "claimRef": true, "nodeAffinity": true}

// UnmarshalJSON reads a spec, and finds its source.
func (s *persistentVolumeSpec) UnmarshalJSON(text []byte) error {
	type plain persistentVolumeSpec
	var fields map[string]json.RawMessage
	if err := errors.Join(json.Unmarshal(text, (*plain)(s)), json.Unmarshal(text, &fields)); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if strings.HasPrefix(string(fields[name]), "{") && !notSources[name] {
			s.source = name
		}
	}
	return nil
}

type localPath struct {
	Path string `json:"path"`
}

// Odd implements kube.Object.
func (*persistentVolume) Odd() string { return "" }

// identity returns what the volume is called on this node, if it is bound and can be here. One that is kept after its claim is gone still
// names the claim, which may be another volume's by then.
func (v *persistentVolume) identity(node string) (Identity, bool) {
	if phase := v.Status.Phase; v.Spec.Claim == nil || phase == "Released" || phase == "Available" || phase == "Failed" {
		return Identity{}, false
	}
	i := Identity{
		Volume:                v.Name,
		Namespace:             v.Spec.Claim.Namespace,
		PersistentVolumeClaim: v.Spec.Claim.Name,
		StorageClass:          v.Spec.StorageClass,
		Backend:               v.backend(),
	}
	switch {
	case v.Spec.CSI != nil:
		// Wherever it is mounted: only the kubelet of its node has it below this name.
		i.Kubelet, i.Plugin = v.Name, csiPlugin
		if strings.HasPrefix(i.Backend, "longhorn") && v.Spec.CSI.Handle != "" {
			// Longhorn's own name of the volume, by which its exporters know it.
			i.Volume = v.Spec.CSI.Handle
		}
	case v.Spec.Local != nil:
		// The kubelet's mount has links in the path followed, and is there whatever names the node has.
		i.Kubelet, i.Plugin = v.Name, localPlugin
		if v.on(node) {
			i.Directory = v.Spec.Local.Path
		}
	case v.Spec.HostPath != nil:
		i.Directory = v.Spec.HostPath.Path
		i.elsewhere = !v.on(node)
		i.InUse = v.Spec.NodeAffinity == nil || i.elsewhere // each node has some folder of this name
	case v.Spec.source != "":
		// One of the kubelet's own plugins mounts it, or the CSI driver that has taken it over.
		i.Kubelet, i.Plugin = v.Name, anyPlugin
	default:
		return Identity{}, false // what has no source cannot be mounted
	}
	return i, true
}

// Annotations of a PersistentVolume: who made it, and the CSI driver that has taken over a source of the kubelet's own.
const (
	provisionedBy = "pv.kubernetes.io/provisioned-by"
	migratedTo    = "pv.kubernetes.io/migrated-to"
)

var (
	// takenOver are the CSI drivers that have taken over what the kubelet had plugins for, by the source. The volumes keep their sources for ever.
	takenOver = map[string]string{
		"awsElasticBlockStore": "ebs.csi.aws.com",
		"gcePersistentDisk":    "pd.csi.storage.gke.io",
		"azureDisk":            "disk.csi.azure.com",
		"azureFile":            "file.csi.azure.com",
		"vsphereVolume":        "csi.vsphere.vmware.com",
		"cinder":               "cinder.csi.openstack.org",
		"portworxVolume":       "pxd.portworx.com",
		"rbd":                  "rbd.csi.ceph.com",
		"cephfs":               "cephfs.csi.ceph.com",
	}
	// backends are the values of the label backend, by CSI driver or, where there is none, by the source. What is not in here is its own name.
	backends = map[string]string{
		"driver.longhorn.io":      "longhorn-v1",
		"io.openebs.csi-mayastor": "mayastor",
		"cstor.csi.openebs.io":    "cstor",
		"jiva.csi.openebs.io":     "jiva",
		"local.csi.openebs.io":    "localpv-lvm",
		"zfs.csi.openebs.io":      "localpv-zfs",
		"pxd.portworx.com":        "portworx",
		"disk.csi.azure.com":      "azure-disk",
		"glusterfs":               "gluster",
		"scaleIO":                 "scaleio",
	}
)

// backend names the storage engine: by its CSI driver, which may have taken the volume over, else by who made it or what it is.
func (v *persistentVolume) backend() string {
	csi := v.Spec.CSI
	driver := v.Annotations[migratedTo]
	switch {
	case csi != nil:
		driver = csi.Driver
	case driver == "" && v.Spec.Flex != nil:
		driver = v.Spec.Flex.Driver
	case driver == "":
		driver = takenOver[v.Spec.source]
	}
	switch made := v.Annotations[provisionedBy]; {
	case driver == "" && v.Labels["openebs.io/cas-type"] == "local-hostpath":
		return "localpv-hostpath"
	case driver == "" && v.Labels["openebs.io/cas-type"] == "local-device":
		return "localpv-device"
	case driver == "" && (v.Spec.HostPath != nil || v.Spec.Local != nil) && strings.Contains(made, "local-path"):
		return "local-path" // Rancher's provisioner, by whatever name it was installed
	case driver == "" && v.Spec.Local != nil:
		return "local" // of a provisioner of local disks, or made by hand
	case driver == "" && v.Spec.HostPath != nil && v.Spec.NodeAffinity != nil && made == "":
		return "local-path" // as of Rancher's before it had the annotation
	case driver == "" && v.Spec.HostPath != nil:
		return "hostpath"
	case driver == "":
		driver = v.Spec.source
	case csi != nil && driver == "driver.longhorn.io" && (csi.Attributes["dataEngine"] == "v2" || csi.Attributes["backendStoreDriver"] == "v2"):
		return "longhorn-v2" // Longhorn 1.5 and 1.6 call the engine the backend's driver
	case strings.HasSuffix(driver, "rbd.csi.ceph.com"):
		// Rook puts its namespace before the driver's name.
		return "ceph-rbd"
	}
	if name := backends[driver]; name != "" {
		return name
	}
	return driver
}

// on says whether the volume can be used on a node: whether one of its terms, if it has any,
// names the node.
func (v *persistentVolume) on(node string) bool {
	if v.Spec.NodeAffinity == nil || v.Spec.NodeAffinity.Required == nil {
		return true
	}
	for _, term := range v.Spec.NodeAffinity.Required.Terms {
		for _, e := range term.Expressions {
			host := e.Key == "kubernetes.io/hostname" || e.Key == "openebs.io/nodename" || e.Key == "openebs.io/nodeid"
			if host && e.Operator == "In" && slices.Contains(e.Values, node) {
				return true
			}
		}
	}
	return false
}
