package volume

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
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
`

func TestIdentityOfPersistentVolume(t *testing.T) {
	var objects []map[string]any
	if err := yaml.Unmarshal([]byte(volumesYAML), &objects); err != nil {
		t.Fatal(err)
	}
	want := map[string]Identity{
		"pvc-1": {Volume: "vol-1", Kubelet: "pvc-1", Namespace: "db", PersistentVolumeClaim: "data-pg-0", StorageClass: "longhorn-r3", Backend: "longhorn-v2"},
		"pvc-2": {Volume: "pvc-2", Directory: "/opt/local-path-provisioner/pvc-2", Namespace: "db", PersistentVolumeClaim: "data-pg-1", StorageClass: "local-path", Backend: "local-path"},
		"pvc-5": {Volume: "pvc-5", Directory: "/var/openebs/local/pvc-5", Namespace: "db", PersistentVolumeClaim: "data-pg-3", StorageClass: "openebs-hostpath", Backend: "localpv-hostpath"},
		"pvc-6": {Volume: "pvc-6", Kubelet: "pvc-6", Namespace: "db", PersistentVolumeClaim: "data-pg-4", StorageClass: "rook-ceph-block", Backend: "ceph-rbd"},
		"pvc-7": {Volume: "pvc-7", Kubelet: "pvc-7", Namespace: "db", PersistentVolumeClaim: "data-pg-5", Backend: "csi.example.com"},
	}
	for _, o := range objects {
		var v persistentVolume
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, &v); err != nil {
			t.Fatal(err)
		}
		i, ok := v.identity("n1")
		expected, here := want[v.Name]
		if ok != here || i != expected {
			t.Errorf("%s: %+v %v\nwant %+v %v", v.Name, i, ok, expected, here)
		}
	}
}

// A volume goes by the claim that it is bound to now: kept and given to a claim of another name, or in another namespace, or restored
// from a snapshot beside the old one.
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
		identities, err := k.Identities()
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
	}}
	for name, want := range map[string]string{"pvc-1": "8:16", "pvc-2": "8:32", "pvc-3": "", "mount": ""} {
		if m, _ := tables.kubelet(name); m.Device != want {
			t.Errorf("%s is on %q, want %q", name, m.Device, want)
		}
	}
}
