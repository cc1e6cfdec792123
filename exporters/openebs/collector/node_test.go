package collector

import (
	"log/slog"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/kubetest"
)

// A local volume is on the node that has the label it names, which may differ from the node's name. If no node has it,
// or several have, the volume is on what it names.
func TestNodesByTheirLabels(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "exporter-5d9", RootFS: "/"}
	var err error
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "localpv")
	for name, labels := range map[string]map[string]any{
		"ip-10-0-0-3.internal": {"kubernetes.io/hostname": "node-c"},
		"ip-10-0-0-2.internal": {"kubernetes.io/hostname": "node-b", nodeIDLabel: "node-b"},
		"twin-1":               {nodeIDLabel: "node-a"},
		"twin-2":               {nodeIDLabel: "node-a"},
		"twin-3":               {nodeIDLabel: "node-a"},
	} {
		o.Objects.Put("nodes", &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": name, "labels": labels}}})
	}
	for _, u := range kubetest.Read(t, "testdata/objects.yaml") {
		switch u.GetKind() {
		case "PersistentVolume":
			o.Objects.Put("persistentvolumes", u)
		case "LVMVolume":
			o.Objects.Put("lvmvolumes", u)
		case "ZFSVolume":
			o.Objects.Put("zfsvolumes", u)
		}
	}
	await(t, registry,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath",node="ip-10-0-0-3.internal",path="/var/openebs/local/pvc-host",pool="",volume="pvc-host"} 1`,
		`plumbline_volume_replica_info{address="",backend="localpv-zfs",device="",node="ip-10-0-0-2.internal",replica="pvc-zfs",volume="pvc-zfs"} 1`,
		`plumbline_openebs_localpv_info{backend="localpv-lvm",node="node-a",path="/dev/vg1/pvc-lvm",pool="vg1",volume="pvc-lvm"} 1`)
}
