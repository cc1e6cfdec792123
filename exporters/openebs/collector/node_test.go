package collector

import (
	"log/slog"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
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
	const custom, zone = "openebs.io/custom-node-unique-id", "topology.kubernetes.io/zone"
	for name, labels := range map[string]map[string]any{
		"ip-10-0-0-3.internal": {"kubernetes.io/hostname": "node-c"},
		"ip-10-0-0-2.internal": {"kubernetes.io/hostname": "node-b", nodeIDLabel: "node-b"},
		"twin-1":               {nodeIDLabel: "node-a", custom: "worker-1", zone: "z"},
		"twin-2":               {nodeIDLabel: "node-a", zone: "z"},
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
	// The provisioner takes the labels that an administrator chooses (NodeAffinityLabels), and others may be beside them.
	is := func(key, operator string, values ...any) any {
		return map[string]any{"key": key, "operator": operator, "values": values}
	}
	for name, expressions := range map[string][]any{
		"pvc-custom": {is(zone, "In", "z"), is(custom, "In", "worker-1")}, "pvc-nowhere": {is(custom, "In", "worker-9")}, "pvc-elsewhere": {is(custom, "NotIn", "worker-1")},
	} {
		o.Objects.Put("persistentvolumes", &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"openebs.io/cas-type": "local-hostpath"}},
			"spec": map[string]any{"local": map[string]any{"path": "/var/openebs/local/" + name}, "nodeAffinity": map[string]any{"required": map[string]any{
				"nodeSelectorTerms": []any{map[string]any{"matchExpressions": expressions}}}}},
		}})
	}
	await(t, registry,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath",node="ip-10-0-0-3.internal",path="/var/openebs/local/pvc-host",pool="",volume="pvc-host"} 1`,
		`plumbline_volume_replica_info{address="",backend="localpv-zfs",device="",node="ip-10-0-0-2.internal",replica="pvc-zfs",volume="pvc-zfs"} 1`,
		`plumbline_openebs_localpv_info{backend="localpv-lvm",node="node-a",path="/dev/vg1/pvc-lvm",pool="vg1",volume="pvc-lvm"} 1`,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath",node="twin-1",path="/var/openebs/local/pvc-custom",pool="",volume="pvc-custom"} 1`,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath",node="",path="/var/openebs/local/pvc-nowhere",pool="",volume="pvc-nowhere"} 1`,
		`plumbline_untraced_paths{collector="localpv"} 2`)
}

// Of two PersistentVolumes of one data set, as after the claim was deleted and the volume made anew by hand, the bound one
// has it.
func TestLocalVolumeOfSeveralNames(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "exporter-5d9", RootFS: "/"}
	var err error
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "localpv")
	for name, phase := range map[string]string{"pvc-old": "Released", "restored": "Bound"} {
		o.Objects.Put("persistentvolumes", &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": name}, "status": map[string]any{"phase": phase},
			"spec": map[string]any{"csi": map[string]any{"driver": zfsDriver, "volumeHandle": "pvc-old"}},
		}})
	}
	o.Objects.Put("zfsvolumes", &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "pvc-old"}, "spec": map[string]any{"ownerNodeID": "a", "poolName": "tank"}, "status": map[string]any{"state": "Ready"}}})
	await(t, registry, `plumbline_openebs_localpv_info{backend="localpv-zfs",node="a",path="tank/pvc-old",pool="tank",volume="restored"} 1`)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.Contains(f.String(), `"pvc-old"`) && f.GetName() != "plumbline_openebs_localpv_info" {
			t.Errorf("the released one is there, too: %s", f)
		}
		if f.GetName() == "plumbline_openebs_localpv_info" && len(f.Metric) != 1 {
			t.Errorf("want one volume: %s", f)
		}
	}
}

// A volume without a state, as the drivers made them before they wrote one, is neither ready nor not ready.
func TestLocalPVWithoutAState(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler)}
	var err error
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "localpv")
	for driver, resource := range map[string]string{lvmDriver: "lvmvolumes", zfsDriver: "zfsvolumes"} {
		for _, state := range []string{"", "Pending", "Ready"} {
			name := "pvc-" + resource + state
			o.Objects.Put("persistentvolumes", &unstructured.Unstructured{Object: map[string]any{
				"metadata": map[string]any{"name": name}, "spec": map[string]any{"csi": map[string]any{"driver": driver, "volumeHandle": name}}}})
			volume := map[string]any{"metadata": map[string]any{"name": name}, "spec": map[string]any{"ownerNodeID": "a"}}
			if state != "" {
				volume["status"] = map[string]any{"state": state}
			}
			o.Objects.Put(resource, &unstructured.Unstructured{Object: volume})
		}
	}
	text := exposition.Text(t, registry)
	for backend, resource := range map[string]string{BackendLVM: "lvmvolumes", BackendZFS: "zfsvolumes"} {
		for state, ready := range map[string]string{"": "", "Pending": " 0", "Ready": " 1"} {
			series := `plumbline_openebs_localpv_ready{backend="` + backend + `",volume="pvc-` + resource + state + `"}`
			if strings.Contains(text, series) != (ready != "") || !strings.Contains(text, series+ready) && ready != "" {
				t.Errorf("state %q: want%s of\n%s\n%s", state, ready, series, text)
			}
		}
	}
}
