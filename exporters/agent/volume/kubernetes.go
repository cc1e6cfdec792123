package volume

import (
	"cmp"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Kubernetes names volumes as the API server knows them: by the PersistentVolumes that are
// bound to a claim. Of a cluster's many it returns those that may be on this node.
type Kubernetes struct {
	objects *kube.Objects
	node    string
	// latest are the identities of a revision, near what was near then.
	latest   []Identity
	revision uint64
	near     Near
}

const persistentVolumes = "persistentvolumes"

// NewKubernetes returns a source of the volumes that may be used on node. It makes objects
// follow PersistentVolumes, so it must come before they are run.
func NewKubernetes(objects *kube.Objects, node string) *Kubernetes {
	kube.Follow(objects, kube.Kind{Versions: []string{"v1"}, Resource: persistentVolumes}, func(v *persistentVolume) kube.Object { return v.keep(node) })
	return &Kubernetes{objects: objects, node: node}
}

// Identities returns the bound volumes that may be here. Before the first list it knows none; trouble with the
// API server is counted by the connection's own metrics, and what was known stays.
func (k *Kubernetes) Identities(near Near) ([]Identity, error) {
	revision := k.objects.Revision(persistentVolumes)
	if revision != 0 && revision == k.revision && near.equal(k.near) {
		return k.latest, nil
	}
	claims := map[[2]string]bool{}
	for claim := range near.Claims {
		namespace, name, _ := strings.Cut(claim, "/")
		claims[[2]string{namespace, name}] = true
	}
	volumes := kube.Some(k.objects, persistentVolumes, func(v *bound) bool {
		return near.Claims == nil || v.here || near.Mounted[v.name] || claims[[2]string{v.namespace, v.claim}]
	})
	slices.SortFunc(volumes, func(a, b *bound) int { return cmp.Compare(a.name, b.name) })
	identities := make([]Identity, len(volumes))
	for i, v := range volumes {
		identities[i] = v.identity()
		if near.Claims[v.namespace+"/"+v.claim] && v.elsewhere {
			// A pod that runs here proves that it is this node that the volume names otherwise.
			identities[i].elsewhere, identities[i].InUse = false, false
		}
	}
	k.latest, k.revision, k.near = placeable(identities), revision, near
	return k.latest, nil
}

// bound is what is kept of a PersistentVolume that is bound: a cluster has many.
type bound struct {
	name, volume, namespace, claim, claimUID, class, backend, directory string
	plugin                                                              string // the kubelet's; empty if it does not mount it
	inUse, elsewhere                                                    bool   // as of an Identity
	here                                                                bool   // it names this node
}

// UnknownValue implements kube.Object.
func (*bound) UnknownValue() string { return "" }

// Shared are the texts that many volumes have.
func (v *bound) Shared() []*string { return []*string{&v.namespace, &v.class, &v.backend} }

// identity returns what the volume is called on this node.
func (v *bound) identity() Identity {
	i := Identity{
		Volume: v.volume, Namespace: v.namespace, PersistentVolumeClaim: v.claim, ClaimUID: v.claimUID, StorageClass: v.class, Backend: v.backend,
		Directory: v.directory, Plugin: v.plugin, InUse: v.inUse, elsewhere: v.elsewhere,
	}
	if v.plugin != "" {
		i.Kubelet = v.name
	}
	return i
}

// placeable marks volumes that are on another node by all that is known and share their folder with another volume: it
// is unknown which of them a container uses here.
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
	volumeMeta `json:"metadata"`
	Spec       persistentVolumeSpec `json:"spec"`
	Status     struct {
		Phase string `json:"phase"`
	} `json:"status"`
}

type volumeMeta struct {
	kube.Meta
	Labels struct {
		Kind string `json:"openebs.io/cas-type"`
	} `json:"labels"`
	// Annotations are the volume's provisioner, and the CSI driver that has taken over a source of the kubelet's own.
	Annotations struct {
		ProvisionedBy string `json:"pv.kubernetes.io/provisioned-by"`
		MigratedTo    string `json:"pv.kubernetes.io/migrated-to"`
	} `json:"annotations"`
}

type persistentVolumeSpec struct {
	StorageClass string `json:"storageClassName"`
	Claim        *struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
		UID       string `json:"uid"`
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
	// source is the field of the volume's source: csi, iscsi, nfs, awsElasticBlockStore, …
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

// UnknownValue implements kube.Object.
func (*persistentVolume) UnknownValue() string { return "" }

// keep returns what is kept of the volume, if it is bound and can be on the node. One that is kept after its claim is
// gone still names the claim, which may be another volume's by then.
func (v *persistentVolume) keep(node string) kube.Object {
	if phase := v.Status.Phase; v.Spec.Claim == nil || phase == "Released" || phase == "Available" || phase == "Failed" {
		return nil
	}
	kept := &bound{name: v.Name, volume: v.Name, namespace: v.Spec.Claim.Namespace, claim: v.Spec.Claim.Name, claimUID: v.Spec.Claim.UID, class: v.Spec.StorageClass, backend: v.backend()}
	kept.here = v.Spec.NodeAffinity != nil && v.on(node)
	switch {
	case v.Spec.CSI != nil:
		// Wherever it is mounted: only the kubelet of its node has it below this name.
		kept.plugin, kept.here = csiPlugin, false
		if handle := v.Spec.CSI.Handle; slices.Contains(ownNames, kept.backend) && handle != "" {
			kept.volume = handle
		}
	case v.Spec.Local != nil:
		// The kubelet's mount has links in the path followed, and is there under any name of the node.
		kept.plugin = localPlugin
		if v.on(node) {
			kept.directory = v.Spec.Local.Path
		}
	case v.Spec.HostPath != nil:
		kept.directory = v.Spec.HostPath.Path
		kept.elsewhere = !v.on(node)
		kept.inUse = v.Spec.NodeAffinity == nil || kept.elsewhere // each node has some folder of this name
	case v.Spec.source != "":
		// One of the kubelet's own plugins mounts it, or the CSI driver that has taken it over.
		kept.plugin, kept.here = anyPlugin, false
	default:
		return nil // what has no source cannot be mounted
	}
	return kept
}

var (
	// takenOver are the CSI drivers that have taken over what the kubelet had plugins for, by the source. The volumes
	// keep their sources for ever.
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
	// backends are the values of the label backend, by CSI driver or, where there is none, by the volume's provisioner
	// or the source. A driver or source that is not listed here is its own name.
	backends = map[string]string{
		longhornV1:                  "longhorn-v1",
		longhornV2:                  "longhorn-v2",
		"rbd.csi.ceph.com":          "ceph-rbd",
		"io.openebs.csi-mayastor":   "mayastor",
		"cstor.csi.openebs.io":      "cstor",
		"jiva.csi.openebs.io":       "jiva",
		"local.csi.openebs.io":      "localpv-lvm",
		"zfs.csi.openebs.io":        "localpv-zfs",
		"openebs.io/local-hostpath": "localpv-hostpath",
		"openebs.io/local-device":   "localpv-device",
		"openebs.io/cstor":          "cstor", // of before their CSI drivers: iSCSI's source
		"openebs.io/jiva":           "jiva",
		"pxd.portworx.com":          "portworx",
		"disk.csi.azure.com":        "azure-disk",
		"rancher.io/local-path":     "local-path",
		"local":                     "local", // of a provisioner of local disks, or made by hand
		"hostPath":                  "hostpath",
		"glusterfs":                 "gluster",
		"scaleIO":                   "scaleio",
	}
)

// ownNames are the backends whose handle of a volume is their own name of it, which their exporters use and their wire
// has: that of the PersistentVolume may be another one, as after a restore.
var ownNames = []string{"longhorn-v1", "longhorn-v2", "cstor", "jiva"}

// longhornV1 is Longhorn's driver, and longhornV2 that with its second engine.
const (
	longhornV1 = "driver.longhorn.io"
	longhornV2 = longhornV1 + " v2"
)

// Backends are the values of the label backend that are names of their own; any other one is a CSI driver or the source
// of a PersistentVolume.
func Backends() []string { return slices.Sorted(maps.Values(backends)) }

// backend names the storage backend: by its CSI driver, which may have taken the volume over, else by its provisioner
// or its source.
func (v *persistentVolume) backend() string {
	csi := v.Spec.CSI
	driver := v.Annotations.MigratedTo
	switch {
	case csi != nil:
		driver = csi.Driver
	case driver == "" && v.Spec.Flex != nil:
		driver = v.Spec.Flex.Driver
	case driver == "":
		driver = takenOver[v.Spec.source]
	}
	const localPath = "rancher.io/local-path"
	openEBS := "openebs.io/" + v.Labels.Kind
	switch made := v.Annotations.ProvisionedBy; {
	case driver == "" && backends[openEBS] != "":
		driver = openEBS
	case driver == "" && (v.Spec.HostPath != nil || v.Spec.Local != nil) && strings.Contains(made, "local-path"):
		driver = localPath // under any installed name
	case driver == "" && v.Spec.HostPath != nil && v.Spec.NodeAffinity != nil && made == "":
		driver = localPath // before it had the annotation
	case driver == "":
		driver = v.Spec.source
	case csi != nil && driver == longhornV1 && (csi.Attributes["dataEngine"] == "v2" || csi.Attributes["backendStoreDriver"] == "v2"):
		driver = longhornV2 // Longhorn 1.5 and 1.6 call the engine the backend's driver
	case strings.HasSuffix(driver, "rbd.csi.ceph.com"):
		driver = "rbd.csi.ceph.com" // Rook puts its namespace before the driver's name
	}
	if name := backends[driver]; name != "" {
		return name
	}
	return driver
}

// backendOn returns the storage backend of a volume that is on these disks. A PersistentVolume that was made by hand or in
// Longhorn's UI does not name the engine: the first one's disks are SCSI's, the second one's NVMe's or ublk's.
func (i Identity) backendOn(below []string) string {
	second := func(disk string) bool { return strings.HasPrefix(disk, "nvme") || strings.HasPrefix(disk, "ublkb") }
	if i.Kubelet != "" && i.Backend == backends[longhornV1] && slices.ContainsFunc(below, second) {
		return backends[longhornV2]
	}
	return i.Backend
}

// on reports whether the volume can be used on a node: whether one of its terms, if it has any, names the node.
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
