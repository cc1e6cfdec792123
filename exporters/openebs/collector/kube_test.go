package collector

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/tests/kubetest"
	"github.com/plumbline/plumbline/tests/testkit"
	"github.com/plumbline/plumbline/tests/testkit/exposition"
)

// The objects of all engines on a real API server; then some go, and the engine of another.
func TestObjects(t *testing.T) {
	server := kubetest.Start(t)
	server.Namespace("openebs")
	// LVM's and ZFS's kinds are not there yet, as on a cluster without these engines.
	server.ApplyCRDs(
		kubetest.Definition("openebs.io", "DiskPool", "v1beta2"), kubetest.Definition("openebs.io", "JivaVolume", "v1"),
		kubetest.Definition("cstor.openebs.io", "CStorVolume", "v1"), kubetest.Definition("cstor.openebs.io", "CStorVolumeReplica", "v1"),
		kubetest.Definition("cstor.openebs.io", "CStorPoolInstance", "v1"))
	objects := kubetest.Read(t, "testdata/objects.yaml")
	for _, o := range objects {
		if group := o.GroupVersionKind().Group; group != "local.openebs.io" && group != "zfs.openebs.io" {
			server.Apply(o)
		}
	}
	root := rootWithVG(t)
	await(t, observe(t, server, root, nil),
		`plumbline_kubernetes_objects{resource="persistentvolumes"} 5`,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath",node="node-c",path="/var/openebs/local/pvc-host",pool="",volume="pvc-host"} 1`,
		`plumbline_kubernetes_synced{resource="zfsvolumes"} 1`,
		`plumbline_kubernetes_errors_total{reason="missing",resource="zfsvolumes"} 0`)

	server.ApplyCRDs(kubetest.Definition("local.openebs.io", "LVMVolume", "v1alpha1"), kubetest.Definition("zfs.openebs.io", "ZFSVolume", "v1"))
	server.Apply(objects...)
	f := startMayastor(t, mayastorAnswers(t, true, "127.0.0.1:1"))
	registry := observe(t, server, root, f)
	settled := []string{
		`plumbline_openebs_localpv_ready{backend="localpv-lvm",volume="pvc-lvm"} 1`,
		`plumbline_openebs_localpv_ready{backend="localpv-zfs",volume="pvc-zfs"} 0`,
		`plumbline_volume_healthy_replicas{backend="cstor",volume="pvc-cstor"} 1`,
		`plumbline_volume_healthy_replicas{backend="jiva",volume="pvc-jiva"} 1`,
		`plumbline_openebs_replica_state{backend="cstor",replica="pvc-cstor-cspc-2",state="Rebuilding",volume="pvc-cstor"} 1`,
		`plumbline_openebs_diskpool_state{node="node-a",pool="pool-on-a",state="Created"} 1`,
		`plumbline_openebs_pool_state{backend="cstor",node="node-a",pool="cspc-1",state="ONLINE"} 1`,
		`plumbline_volume_healthy_replicas{backend="mayastor",volume="imported"} 1`,
		`plumbline_openebs_pool_info{backend="mayastor",device="sdb"`,
		`plumbline_openebs_localpv_info{backend="localpv-hostpath"`,
		`plumbline_kubernetes_unknown_values_total{resource="diskpools"} `,
		`plumbline_kubernetes_objects{resource="diskpools"} 2`,
	}
	await(t, registry, settled...)
	exposition.Golden(t, registry, "testdata/objects.prom", volatile...)

	for _, o := range objects {
		if o.GetKind() == "CStorVolume" || o.GetKind() == "JivaVolume" {
			server.Delete(o)
		}
	}
	await(t, registry, `plumbline_kubernetes_objects{resource="jivavolumes"} 0`, `plumbline_kubernetes_objects{resource="cstorvolumes"} 0`)
	text := exposition.Text(t, registry)
	for _, series := range []string{`backend="jiva"`, `plumbline_volume_desired_replicas{backend="cstor"`} {
		if strings.Contains(text, series) {
			t.Errorf("%s is still there", series)
		}
	}
}

// rootWithVG is a host's file system where udev made the link of pvc-lvm's device.
func rootWithVG(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "dev/vg1"), 0o700); err != nil {
		t.Fatal(err)
	}
	testkit.NeedRoot(t)
	if err := unix.Mknod(filepath.Join(root, "dev/dm-3"), unix.S_IFBLK|0o600, int(unix.Mkdev(253, 3))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dm-3", filepath.Join(root, "dev/vg1/pvc-lvm")); err != nil {
		t.Fatal(err)
	}
	return root
}

// observe runs all collectors of objects, and mayastor if there is one.
func observe(t *testing.T, server *kubetest.Server, root string, f *fakeMayastor) *prometheus.Registry {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "node-a", RootFS: root, Interval: 50 * time.Millisecond, Timeout: testkit.DefaultTimeout}
	objects, err := kube.New(server.Config, o.Log)
	if err != nil {
		t.Fatal(err)
	}
	o.Objects = objects
	names := []string{"localpv", "diskpool", "cstor", "jiva"}
	if f != nil {
		o.Mayastor = f.url
		names = append(names, "mayastor")
	}
	registry := registryOf(t, ctx, o, names...)
	if err := objects.Run(ctx); err != nil {
		t.Fatal(err)
	}
	connection := exporterkit.NewSetWithTimeout(o.Log, testkit.DefaultTimeout)
	connection.Add("kubernetes", objects)
	registry.MustRegister(connection)
	return registry
}

// DiskPools are followed in the version that Mayastor's operator has made the served one, and again when it serves
// another; one that is unknown is an error that names it.
func TestDiskPoolVersions(t *testing.T) {
	server := kubetest.Start(t)
	server.Namespace("openebs")
	pool := func(version string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "openebs.io/" + version, "kind": "DiskPool",
			"metadata": map[string]any{"name": "pool-1", "namespace": "openebs"},
			"spec":     map[string]any{"node": "node-1", "disks": []any{"aio:///dev/disk/by-id/x"}, "topology": map[string]any{"labelled": map[string]any{}}},
			"status":   map[string]any{"cr_state": "Created", "pool_status": "Online"}}}
	}
	const line = `plumbline_openebs_diskpool_state{node="node-1",pool="pool-1",state="Created"} 1`
	server.ApplyCRDs(kubetest.Definition("openebs.io", "DiskPool", "v1beta3"))
	server.Apply(pool("v1beta3"))
	registry := observe(t, server, t.TempDir(), nil)
	await(t, registry, line, `plumbline_scrape_collector_success{collector="diskpool"} 1`)
	// The future, which is not known: v1beta3 is stored no more, and then not served.
	both := kubetest.Definition("openebs.io", "DiskPool", "v1beta3", "v1")
	server.ApplyCRDs(both)
	versions, _, _ := unstructured.NestedSlice(both.Object, "spec", "versions")
	versions[0].(map[string]any)["served"] = false
	if err := unstructured.SetNestedSlice(both.Object, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	server.ApplyCRDs(both)
	late := observe(t, server, t.TempDir(), nil)
	rises(t, func() string { return exposition.Text(t, late) }, `plumbline_kubernetes_errors_total{reason="version",resource="diskpools"}`)
	await(t, late, `plumbline_scrape_collector_success{collector="diskpool"} 0`)
}

// A hostpath volume on this node is traced to the disk under its directory.
func TestHostpathDevice(t *testing.T) {
	finder := &disk.Finder{ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}
	device, err := finder.Wait("/var/tmp")
	if err != nil {
		testkit.Skip(t, "/var/tmp is on no block device: "+err.Error())
	}
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "node-c", ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "localpv")
	volume := kubetest.Read(t, "testdata/objects.yaml")[0]
	if err := unstructured.SetNestedField(volume.Object, "/var/tmp", "spec", "local", "path"); err != nil {
		t.Fatal(err)
	}
	o.Objects.Put("persistentvolumes", volume)
	await(t, registry, `plumbline_volume_replica_info{address="",backend="localpv-hostpath",device="`+device+`",node="node-c",replica="pvc-host",volume="pvc-host"} 1`)
}

// A directory whose disk cannot be found is counted and leaves the label device empty; it does not fail the collector.
func TestUntraceableHostpath(t *testing.T) {
	o := Options{Log: slog.New(slog.DiscardHandler), Node: "node-c", ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}
	var err error
	if o.Objects, err = kube.New(&rest.Config{Host: "https://127.0.0.1:1"}, o.Log); err != nil {
		t.Fatal(err)
	}
	registry := registryOf(t, t.Context(), o, "localpv")
	volume := kubetest.Read(t, "testdata/objects.yaml")[0]
	if err := unstructured.SetNestedField(volume.Object, "/no/such/directory", "spec", "local", "path"); err != nil {
		t.Fatal(err)
	}
	o.Objects.Put("persistentvolumes", volume)
	await(t, registry, `plumbline_volume_replica_info{address="",backend="localpv-hostpath",device="",node="node-c",replica="pvc-host",volume="pvc-host"} 1`,
		`plumbline_untraced_paths{collector="localpv"} 1`, `plumbline_scrape_collector_success{collector="localpv"} 1`)
}
