package volume

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// volumes are as the provisioners make them, without what is not read.
const volumesYAML = `
- metadata: {name: pvc-1}
  spec:
    storageClassName: longhorn-r3
    claimRef: {namespace: db, name: data-pg-0}
    csi: {driver: driver.longhorn.io, volumeHandle: vol-1, volumeAttributes: {dataEngine: v2}}
- metadata: {name: pvc-2}
  spec:
    storageClassName: local-path
    claimRef: {namespace: db, name: data-pg-1}
    hostPath: {path: /opt/local-path-provisioner/pvc-2}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
- metadata: {name: pvc-3}
  spec:
    storageClassName: local-path
    claimRef: {namespace: db, name: data-pg-2}
    hostPath: {path: /opt/local-path-provisioner/pvc-3}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n2]}]}]}}
- metadata: {name: pvc-4}
  spec:
    storageClassName: rook-ceph-block
    csi: {driver: rook-ceph.rbd.csi.ceph.com, volumeHandle: "0001"}
- metadata: {name: pvc-5, labels: {openebs.io/cas-type: local-hostpath}}
  spec:
    storageClassName: openebs-hostpath
    claimRef: {namespace: db, name: data-pg-3}
    local: {path: /var/openebs/local/pvc-5}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
- metadata: {name: pvc-6}
  spec:
    storageClassName: rook-ceph-block
    claimRef: {namespace: db, name: data-pg-4}
    csi: {driver: rook-ceph.rbd.csi.ceph.com, volumeHandle: "0002"}
- metadata: {name: pvc-7}
  spec:
    claimRef: {namespace: db, name: data-pg-5}
    csi: {driver: csi.example.com, volumeHandle: x}
- metadata: {name: pvc-8}
  spec: {claimRef: {namespace: db, name: data-pg-6}}
- metadata: {name: pvc-9}
  spec:
    claimRef: {namespace: db, name: data-pg-7}
    hostPath: {path: /srv/pvc-9}
- metadata: {name: pvc-10}
  spec:
    claimRef: {namespace: db, name: data-pg-8}
    local: {path: /mnt/disks/one}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1.example]}]}]}}
- metadata: {name: pvc-11}
  spec:
    claimRef: {namespace: db, name: data-pg-1}
    hostPath: {path: /opt/local-path-provisioner/pvc-11}
  status: {phase: Released}
- metadata: {name: pvc-12}
  spec:
    claimRef: {namespace: db, name: later}
    csi: {driver: csi.example.com, volumeHandle: x}
  status: {phase: Available}
- metadata: {name: pvc-13}
  spec:
    claimRef: {namespace: db, name: data-pg-9}
    csi: {driver: driver.longhorn.io, volumeHandle: pvc-13, volumeAttributes: {backendStoreDriver: v2}}
- metadata: {name: pvc-14, annotations: {pv.kubernetes.io/provisioned-by: cluster.local/storage-local-path-provisioner}}
  spec:
    claimRef: {namespace: db, name: data-pg-10}
    local: {path: /opt/local-path-provisioner/pvc-14}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
- metadata: {name: pvc-15, labels: {openebs.io/cas-type: local-device}}
  spec:
    claimRef: {namespace: db, name: data-pg-11}
    local: {path: /dev/sdx}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
- metadata: {name: pvc-16, annotations: {pv.kubernetes.io/provisioned-by: microk8s.io/hostpath}}
  spec:
    claimRef: {namespace: db, name: data-pg-12}
    hostPath: {path: /var/snap/pvc-16}
    nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [n1]}]}]}}
- metadata: {name: velero-clone-1}
  spec:
    claimRef: {namespace: db, name: data-pg-13}
    csi: {driver: cstor.csi.openebs.io, volumeHandle: pvc-17}
- metadata: {name: velero-clone-2}
  spec:
    claimRef: {namespace: db, name: data-pg-14}
    csi: {driver: jiva.csi.openebs.io, volumeHandle: pvc-18}
- metadata: {name: pvc-19, labels: {openebs.io/cas-type: jiva}, annotations: {pv.kubernetes.io/provisioned-by: openebs.io/provisioner-iscsi}}
  spec:
    claimRef: {namespace: db, name: data-pg-15}
    iscsi: {targetPortal: "10.0.0.1:3260", iqn: "iqn.2016-09.com.openebs.jiva:pvc-19", lun: 0}
`

func TestIdentityOfPersistentVolume(t *testing.T) {
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(volumesYAML), &objects); err != nil {
		t.Fatal(err)
	}
	want := map[string]Identity{
		"pvc-1": {Volume: "vol-1", Kubelet: "pvc-1", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-0", StorageClass: "longhorn-r3", Backend: "longhorn-v2"},
		"pvc-2": {Volume: "pvc-2", Directory: "/opt/local-path-provisioner/pvc-2", Namespace: "db", PersistentVolumeClaim: "data-pg-1", StorageClass: "local-path", Backend: "local-path"},
		"pvc-5": {Volume: "pvc-5", Kubelet: "pvc-5", Plugin: localPlugin, Directory: "/var/openebs/local/pvc-5", Namespace: "db", PersistentVolumeClaim: "data-pg-3", StorageClass: "openebs-hostpath", Backend: "localpv-hostpath"},
		"pvc-6": {Volume: "pvc-6", Kubelet: "pvc-6", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-4", StorageClass: "rook-ceph-block", Backend: "ceph-rbd"},
		"pvc-7": {Volume: "pvc-7", Kubelet: "pvc-7", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-5", Backend: "csi.example.com"},
		// Each node has some folder of that name: it is where it is used.
		"pvc-9": {Volume: "pvc-9", Directory: "/srv/pvc-9", InUse: true, Namespace: "db", PersistentVolumeClaim: "data-pg-7", Backend: "hostpath"},
		// The node's name and its label are two things.
		"pvc-3":          {Volume: "pvc-3", Directory: "/opt/local-path-provisioner/pvc-3", InUse: true, elsewhere: true, Namespace: "db", PersistentVolumeClaim: "data-pg-2", StorageClass: "local-path", Backend: "local-path"},
		"pvc-10":         {Volume: "pvc-10", Kubelet: "pvc-10", Plugin: localPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-8", Backend: "local"},
		"pvc-13":         {Volume: "pvc-13", Kubelet: "pvc-13", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-9", Backend: "longhorn-v2"},
		"pvc-14":         {Volume: "pvc-14", Kubelet: "pvc-14", Plugin: localPlugin, Directory: "/opt/local-path-provisioner/pvc-14", Namespace: "db", PersistentVolumeClaim: "data-pg-10", Backend: "local-path"},
		"pvc-15":         {Volume: "pvc-15", Kubelet: "pvc-15", Plugin: localPlugin, Directory: "/dev/sdx", Namespace: "db", PersistentVolumeClaim: "data-pg-11", Backend: "localpv-device"},
		"velero-clone-1": {Volume: "pvc-17", Kubelet: "velero-clone-1", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-13", Backend: "cstor"},
		"velero-clone-2": {Volume: "pvc-18", Kubelet: "velero-clone-2", Plugin: csiPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-14", Backend: "jiva"},
		"pvc-19":         {Volume: "pvc-19", Kubelet: "pvc-19", Plugin: anyPlugin, Namespace: "db", PersistentVolumeClaim: "data-pg-15", Backend: "jiva"},
		"pvc-16":         {Volume: "pvc-16", Directory: "/var/snap/pvc-16", Namespace: "db", PersistentVolumeClaim: "data-pg-12", Backend: "hostpath"},
	}
	for _, o := range objects {
		var v persistentVolume
		text, err := json.Marshal(o)
		if err == nil {
			err = json.Unmarshal(text, &v)
		}
		if err != nil {
			t.Fatal(err)
		}
		var i Identity
		kept, ok := v.keep("n1").(*bound)
		if ok {
			i = kept.identity()
		}
		expected, here := want[v.Name]
		if ok != here || i != expected {
			t.Errorf("%s: %+v %v\nwant %+v %v", v.Name, i, ok, expected, here)
		}
	}
}

// Where the node's label is not its name, a hostPath's volume is where a container uses its folder. That does not hold
// if the folder is that of another volume, too: on each node one is used then, and it is unknown which.
func TestHostPathOfANodeByAnotherName(t *testing.T) {
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	proc, sys := machine(t)
	k := NewKubernetes(objects, "n1")
	put := func(name, label, path string) {
		values := []any{label}
		objects.Put("persistentvolumes", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{
			"claimRef": map[string]any{"namespace": "db", "name": name}, "hostPath": map[string]any{"path": path},
			"nodeAffinity": map[string]any{"required": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{
				map[string]any{"key": "kubernetes.io/hostname", "operator": "In", "values": values}}}}}}}}})
	}
	is := func(when string, want ...string) {
		t.Helper()
		found, err := NewNode(proc, sys, k).Find()
		var got []string
		for _, f := range found {
			got = append(got, f.Volume+"="+f.Disk)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", when, got, err, want)
		}
	}
	put("used", "n1.example", "/srv/local/one")
	put("unused", "n2.example", "/srv/local/two")
	is("by other names", "used=vda")
	put("twin", "n2.example", "/srv/local/one/")
	is("one folder on two nodes")
	put("used", "n1", "/srv/local/one")
	is("one of them by its name", "used=vda")

	// A container that uses only a part of the folder proves nothing; that a pod with the claim runs here does.
	put("used", "n1.example", "/srv/local")
	is("a part is used", "twin=vda")
	node := NewNode(proc, sys, k)
	node.Pods = &podsOf{proc: proc, claims: map[string]bool{"db/used": true, "db/twin": false}}
	found, err := node.Find()
	if err != nil || len(found) != 2 || found[1].Volume != "used" || found[1].Disk != "vda" {
		t.Errorf("with its pod: %+v, %v", found, err)
	}
}

// A volume goes by the claim that it is bound to now: kept and given to a claim of another name, or in another
// namespace, or restored from a snapshot beside the old one.
func TestClaimRenamed(t *testing.T) {
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	k := NewKubernetes(objects, "n1")
	put := func(volume, namespace, claim, class string) {
		o := map[string]any{"metadata": map[string]any{"name": volume}, "spec": map[string]any{
			"storageClassName": class, "csi": map[string]any{"driver": "driver.longhorn.io", "volumeHandle": volume}}}
		if claim != "" {
			o["spec"].(map[string]any)["claimRef"] = map[string]any{"namespace": namespace, "name": claim}
		}
		objects.Put("persistentvolumes", &unstructured.Unstructured{Object: o})
	}
	is := func(when string, want ...string) {
		t.Helper()
		identities, err := k.Identities(Near{})
		var got []string
		for _, i := range identities {
			got = append(got, fmt.Sprintf("%s=%s/%s %s", i.Volume, i.Namespace, i.PersistentVolumeClaim, i.StorageClass))
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", when, got, err, want)
		}
	}
	put("pvc-1", "db", "pg-1", "r3")
	is("at first", "pvc-1=db/pg-1 r3")
	put("pvc-1", "", "", "r3")
	is("given back")
	put("pvc-1", "other", "pg-7", "r3")
	is("under another name", "pvc-1=other/pg-7 r3")
	put("pvc-2", "db", "pg-1", "r1")
	is("restored, on another class, under the first name", "pvc-1=other/pg-7 r3", "pvc-2=db/pg-1 r1")
}

func TestKubeletMount(t *testing.T) {
	tables := &Tables{Host: []Mount{
		{Point: "/var/lib/kubelet/plugins/kubernetes.io/csi/driver.longhorn.io/abc/globalmount", Device: "8:0"},
		{Point: "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~csi/pvc-1/mount", Device: "8:16"},
		{Point: "/var/lib/kubelet/pods/u1/volumes/kubernetes.io~local-volume/pvc-2", Device: "8:32"},
		{Point: "/srv/pvc-3", Device: "8:48"},
		// A pod's own volumes, named as another's.
		{Point: "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~empty-dir/pvc-1", Device: "0:99"},
		{Point: "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pvc-2/mount", Device: "8:64"},
		{Point: "/var/lib/kubelet/pods/u2/volumes/kubernetes.io~csi/pvc-4", Device: "8:80"},
		// Raw block volumes; two pods have one of them.
		{Point: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-5/dev/u1", Device: "0:6", Root: "/sdx"},
		{Point: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/pvc-5/dev/u2", Device: "0:6", Root: "/sdx"},
		{Point: "/var/lib/kubelet/plugins/kubernetes.io/csi/volumeDevices/publish/pvc-5/u1", Device: "0:6", Root: "/sdx"},
		{Point: "/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pvc-6/u1", Device: "0:6", Root: "/sdy"},
		{Point: "/var/lib/kubelet/plugins/kubernetes.io~local-volume/volumeDevices/pvc-6/u2", Device: "0:6", Root: "/sdz"},
		// Two pods have it.
		{Point: "/var/lib/kubelet/pods/u3/volumes/kubernetes.io~csi/pvc-1/mount", Device: "8:16"},
	}}
	for _, c := range []struct{ plugin, name, want string }{
		{csiPlugin, "pvc-1", "8:16"}, {localPlugin, "pvc-2", "8:32"}, {csiPlugin, "pvc-3", ""}, {csiPlugin, "mount", ""}, {csiPlugin, "pvc-4", ""}, {localPlugin, "pvc-1", ""},
		{csiPlugin, "pvc-5", "0:6"}, {localPlugin, "pvc-5", ""}, {localPlugin, "pvc-6", "0:6 0:6"},
	} {
		var got []string
		for _, m := range tables.kubelet(c.plugin, c.name) {
			got = append(got, m.Device)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s of %s is on %q, want %q", c.name, c.plugin, got, c.want)
		}
	}
}
