package volume

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// sourcesYAML are bound PersistentVolumes of every source that Kubernetes has or had; migrated ones keep theirs.
const sourcesYAML = `
- {metadata: {name: pg-san-0}, spec: {iscsi: {targetPortal: "192.0.2.10:3260", iqn: "iqn.2005-10.org.example:pg", lun: 0, fsType: ext4}}}
- {metadata: {name: pg-fc-0}, spec: {fc: {targetWWNs: ["50060e801049cfd1"], lun: 0, fsType: xfs}}}
- {metadata: {name: pvc-aws, annotations: {pv.kubernetes.io/migrated-to: ebs.csi.aws.com, pv.kubernetes.io/provisioned-by: kubernetes.io/aws-ebs}}, spec: {storageClassName: gp2, awsElasticBlockStore: {volumeID: vol-0123456789abcdef0, fsType: ext4}}}
- {metadata: {name: pvc-aws-old}, spec: {awsElasticBlockStore: {volumeID: aws://eu-1/vol-1}}}
- {metadata: {name: pvc-gce, annotations: {pv.kubernetes.io/migrated-to: pd.csi.storage.gke.io}}, spec: {gcePersistentDisk: {pdName: d}}}
- {metadata: {name: pvc-azure}, spec: {azureDisk: {diskName: d, diskURI: /subscriptions/x}}}
- {metadata: {name: pvc-azure-file}, spec: {azureFile: {shareName: s, secretName: x}}}
- {metadata: {name: pvc-vsphere, annotations: {pv.kubernetes.io/migrated-to: csi.vsphere.vmware.com}}, spec: {vsphereVolume: {volumePath: "[ds] kubevols/x.vmdk"}}}
- {metadata: {name: pvc-cinder}, spec: {cinder: {volumeID: x}}}
- {metadata: {name: pvc-px}, spec: {portworxVolume: {volumeID: "1013237432577873530", fsType: ext4}}}
- {metadata: {name: pvc-nfs}, spec: {nfs: {server: nfs.example, path: /export/pg}}}
- {metadata: {name: pvc-rbd}, spec: {rbd: {monitors: ["192.0.2.1:6789"], pool: rbd, image: pg}}}
- {metadata: {name: pvc-cephfs}, spec: {cephfs: {monitors: ["192.0.2.1:6789"]}}}
- {metadata: {name: pvc-gluster}, spec: {glusterfs: {endpoints: g, path: v}}}
- {metadata: {name: pvc-scaleio}, spec: {scaleIO: {gateway: "https://192.0.2.2", system: s, volumeName: v}}}
- {metadata: {name: pvc-flex}, spec: {flexVolume: {driver: example.com/lvm, fsType: ext4}}}
- {metadata: {name: pvc-new}, spec: {someNewKind: {id: 7}}}
- {metadata: {name: pvc-lh-scsi}, spec: {csi: {driver: driver.longhorn.io, volumeHandle: pvc-lh-scsi, volumeAttributes: {numberOfReplicas: "3", staleReplicaTimeout: "2880"}}}}
- {metadata: {name: pvc-lh-nvme}, spec: {csi: {driver: driver.longhorn.io, volumeHandle: pvc-lh-nvme, volumeAttributes: {numberOfReplicas: "3", staleReplicaTimeout: "2880"}}}}
- {metadata: {name: pvc-lh-ublk}, spec: {csi: {driver: driver.longhorn.io, volumeHandle: pvc-lh-ublk}}}
- {metadata: {name: pvc-away}, spec: {iscsi: {iqn: "iqn.2005-10.org.example:away"}}}
`

// sourcesMounts are the host's mounts for them.
const sourcesMounts = `53 22 8:192 of another form
22 1 254:1 / / rw - ext4 /dev/vda1 rw
30 22 8:16 / KUBELET/plugins/kubernetes.io/iscsi/iface-default/192.0.2.10:3260-iqn.2005-10.org.example:pg-lun-0 rw - ext4 /dev/sdb rw
31 22 8:16 / POD/kubernetes.io~iscsi/pg-san-0 rw - ext4 /dev/sdb rw
32 22 8:32 / POD/kubernetes.io~fc/pg-fc-0 rw - xfs /dev/sdc rw
33 22 259:1 / POD/kubernetes.io~csi/pvc-aws/mount rw - ext4 /dev/nvme1n1 rw
34 22 8:48 / POD/kubernetes.io~csi/pvc-vsphere/mount rw - ext4 /dev/sdd rw
35 22 8:64 / POD/kubernetes.io~aws-ebs/pvc-aws-old rw - ext4 /dev/sde rw
36 22 8:80 / POD/kubernetes.io~csi/pvc-gce/mount rw - ext4 /dev/sdf rw
37 22 252:1 / POD/kubernetes.io~portworx-volume/pvc-px rw - ext4 /dev/pxd/pxd1013237432577873530 rw
38 22 8:96 / POD/kubernetes.io~azure-disk/pvc-azure rw - ext4 /dev/sdg rw
39 22 0:55 / POD/kubernetes.io~nfs/pvc-nfs rw - nfs4 nfs.example:/export/pg rw
40 22 251:0 / POD/kubernetes.io~rbd/pvc-rbd rw - ext4 /dev/rbd0 rw
41 22 0:56 / POD/kubernetes.io~cephfs/pvc-cephfs rw - ceph 192.0.2.1:/ rw
42 22 0:57 / POD/kubernetes.io~glusterfs/pvc-gluster rw - fuse.glusterfs g:v rw
43 22 8:112 / POD/kubernetes.io~scaleio/pvc-scaleio rw - ext4 /dev/scinia rw
44 22 8:128 / POD/example.com~lvm/pvc-flex rw - ext4 /dev/sdi rw
45 22 8:144 / POD/example.org~other/pvc-new rw - ext4 /dev/sdj rw
46 22 0:58 / POD/kubernetes.io~azure-file/pvc-azure-file rw - cifs //x/s rw
47 22 8:160 / POD/kubernetes.io~cinder/pvc-cinder rw - ext4 /dev/sdk rw
53 22 8:208 / POD/kubernetes.io~csi/pvc-lh-scsi/mount rw - ext4 /dev/longhorn/pvc-lh-scsi rw
54 22 253:9 / POD/kubernetes.io~csi/pvc-lh-nvme/mount rw - ext4 /dev/longhorn/pvc-lh-nvme rw
55 22 260:0 / POD/kubernetes.io~csi/pvc-lh-ublk/mount rw - ext4 /dev/longhorn/pvc-lh-ublk rw
50 22 0:60 / POD/kubernetes.io~projected/kube-api-access rw - tmpfs tmpfs rw
51 22 0:61 / POD/kubernetes.io~empty-dir/pvc-away rw - tmpfs tmpfs rw
52 22 8:176 / POD/kubernetes.io~empty-dir/pvc-aws rw - ext4 /dev/sdl rw
`

// podsOf are the pods of a test.
type podsOf struct {
	proc                   string
	claims                 map[string]bool
	unread, unknown, lines int
	queried                []int
}

func (p *podsOf) Claims() map[string]bool { return p.claims }

func (p *podsOf) Walk() *pod.Walk { return pod.NewWalk(p.proc) }

func (p *podsOf) Strays(pids []int) (int, int, int) {
	p.queried = pids
	return p.unread, p.unknown, p.lines
}

// A volume of any source is found by its name where the kubelet mounts it, whichever of its plugins or CSI driver did.
// What is not, and a pod of this node uses, is counted, by why.
func TestSourcesOfPersistentVolumes(t *testing.T) {
	objects, err := kube.New(&rest.Config{Host: "http://127.0.0.1:1"}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	proc, sys := t.TempDir(), t.TempDir()
	mounts := strings.ReplaceAll(strings.ReplaceAll(sourcesMounts, "POD", "KUBELET/pods/11111111-2222-3333-4444-555555555555/volumes"), "KUBELET", "/var/lib/kubelet")
	if err := errors.Join(os.MkdirAll(filepath.Join(proc, "1", "ns"), 0o755), os.MkdirAll(filepath.Join(sys, "dev/block"), 0o755),
		os.WriteFile(filepath.Join(proc, "1", "mountinfo"), []byte(mounts), 0o644)); err != nil {
		t.Fatal(err)
	}
	for number, name := range map[string]string{"8:16": "sdb", "8:32": "sdc", "259:1": "nvme1n1", "8:48": "sdd", "8:64": "sde", "8:80": "sdf",
		"252:1": "pxd!pxd1013237432577873530", "8:96": "sdg", "251:0": "rbd0", "8:112": "scinia", "8:128": "sdi", "8:144": "sdj", "8:176": "sdl", "8:208": "sdm", "253:9": "dm-9", "260:0": "ublkb0"} {
		if err := errors.Join(os.MkdirAll(filepath.Join(sys, "devices", name), 0o755), os.Symlink("../../devices/"+name, filepath.Join(sys, "dev/block", number))); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(sys, "class/block/dm-9/slaves/nvme3n1"), 0o755); err != nil {
		t.Fatal(err)
	}
	k := NewKubernetes(objects, "n1")
	var volumes []map[string]any
	if err := yaml.Unmarshal([]byte(sourcesYAML), &volumes); err != nil {
		t.Fatal(err)
	}
	pods := &podsOf{proc: proc, claims: map[string]bool{"db/nobody-knows": true}, unread: 2, unknown: 1, lines: 3}
	for _, v := range volumes {
		name := v["metadata"].(map[string]any)["name"].(string)
		v["spec"].(map[string]any)["claimRef"] = map[string]any{"namespace": "db", "name": "of-" + name}
		v["status"] = map[string]any{"phase": "Bound"}
		pods.claims["db/of-"+name] = true
		objects.Put("persistentvolumes", &unstructured.Unstructured{Object: v})
	}
	node := NewNode(proc, sys, k)
	node.Pods = pods
	scan := node.find()
	var got []string
	for _, f := range scan.found {
		if f.PersistentVolumeClaim != "of-"+f.Volume {
			t.Errorf("%s is bound to %s", f.Volume, f.PersistentVolumeClaim)
		}
		got = append(got, f.Volume+" "+f.Disk+" "+f.Backend)
	}
	want := []string{
		"pg-fc-0 sdc fc", "pg-san-0 sdb iscsi", "pvc-aws nvme1n1 ebs.csi.aws.com", "pvc-aws-old sde ebs.csi.aws.com", "pvc-azure sdg azure-disk",
		"pvc-flex sdi example.com/lvm", "pvc-gce sdf pd.csi.storage.gke.io", "pvc-lh-nvme dm-9 longhorn-v2", "pvc-lh-scsi sdm longhorn-v1", "pvc-lh-ublk ublkb0 longhorn-v2", "pvc-new sdj someNewKind", "pvc-px pxd/pxd1013237432577873530 portworx", "pvc-rbd rbd0 ceph-rbd",
		"pvc-scaleio scinia scaleio", "pvc-vsphere sdd csi.vsphere.vmware.com",
	}
	if !slices.Equal(got, want) {
		t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// NFS, CephFS, GlusterFS and a share of files have no device.
	if scan.without != 4 {
		t.Errorf("%d volumes are on no device", scan.without)
	}
	// The device of pvc-cinder is not there; pvc-away is not mounted.
	if scan.err == nil || !strings.Contains(scan.err.Error(), "volume pvc-cinder: device 8:160") {
		t.Errorf("%v", scan.err)
	}
	if got := fmt.Sprint(scan.unidentified); got != "{map[ambiguous:0 device:1 not_mounted:1 unknown:1] map[cgroup:2 pod:1] map[cgroup:3 mountinfo:1]}" {
		t.Errorf("not identified are %s", got)
	}
	var backends []string
	all, _ := k.Identities(Near{})
	for _, i := range all {
		if slices.Contains([]string{"pvc-nfs", "pvc-cephfs", "pvc-gluster", "pvc-azure-file", "pvc-cinder"}, i.Volume) {
			backends = append(backends, i.Backend)
		}
	}
	if got := strings.Join(backends, " "); got != "file.csi.azure.com cephfs.csi.ceph.com cinder.csi.openstack.org gluster nfs" {
		t.Errorf("their backends are %s", got)
	}
}
