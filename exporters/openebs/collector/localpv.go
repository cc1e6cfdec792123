package collector

import (
	"context"
	"errors"
	"path"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

// Metrics of the collector localpv. A local volume has one replica, itself; where it is
// comes from the PersistentVolume, and for LVM and ZFS from the driver's own object.
var (
	localInfo = prometheus.NewDesc("plumbline_openebs_localpv_info",
		"A LocalPV volume: its node, the volume group or ZFS pool it is in (empty for hostpath), and its path: the directory, the LVM device, or the ZFS data set. Always 1.",
		[]string{"volume", "backend", "node", "pool", "path"}, nil)
	localState = prometheus.NewDesc("plumbline_openebs_localpv_ready",
		"Whether the driver says that the LVM or ZFS volume is ready: 1 yes, 0 no.", []string{"volume", "backend"}, nil)
)

// CSI drivers of the local engines.
const (
	lvmDriver = "local.csi.openebs.io"
	zfsDriver = "zfs.csi.openebs.io"
)

// hostpathLabel is set by the hostpath provisioner on its volumes, with the value
// "local-hostpath" (dynamic-localpv-provisioner).
const hostpathLabel = "openebs.io/cas-type"

type lvmVolume struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Owner string `json:"ownerNodeID"`
		Group string `json:"volGroup"`
	} `json:"spec"`
	Status struct {
		State string `json:"state"`
	} `json:"status"`
}

func (*lvmVolume) Odd() string { return "" }

type zfsVolume struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Owner string `json:"ownerNodeID"`
		Pool  string `json:"poolName"`
	} `json:"spec"`
	Status struct {
		State string `json:"state"`
	} `json:"status"`
}

func (*zfsVolume) Odd() string { return "" }

type localPV struct {
	o        Options
	disks    *disk.Finder
	untraced *disk.Untraced
}

// NewLocalPV makes the collector of the local engines' volumes.
func NewLocalPV(o Options) Collector {
	followVolumes(o.Objects)
	followNodes(o.Objects)
	// A cluster without one of these engines has no such resource.
	kube.FollowIfServed[lvmVolume](o.Objects, schema.GroupVersionResource{Group: "local.openebs.io", Version: "v1alpha1", Resource: "lvmvolumes"}, "")
	kube.FollowIfServed[zfsVolume](o.Objects, schema.GroupVersionResource{Group: "zfs.openebs.io", Version: "v1", Resource: "zfsvolumes"}, "")
	return &localPV{o, &disk.Finder{ProcFS: o.ProcFS, SysFS: o.SysFS, RootFS: o.RootFS}, disk.NewUntraced(o.Log, "localpv")}
}

func (c *localPV) Start(context.Context) error { return nil }

func (c *localPV) Update(ch chan<- prometheus.Metric) error {
	lvm := kube.All[*lvmVolume](c.o.Objects, "lvmvolumes")
	zfs := kube.All[*zfsVolume](c.o.Objects, "zfsvolumes")
	nodeName := nodeNames(c.o.Objects)
	sent := 0
	send := func(volume, backend, node, pool, path, device string) {
		sent++
		gauge(ch, localInfo, 1, volume, backend, node, pool, path)
		gauge(ch, exporterkit.DesiredReplicas, 1, volume, backend)
		gauge(ch, exporterkit.ReplicaInfo, 1, volume, volume, node, device, "", backend)
	}
	for name, v := range kube.All[*persistentVolume](c.o.Objects, "persistentvolumes") {
		switch {
		case v.Spec.Local != nil && v.Labels[hostpathLabel] == "local-hostpath":
			device, node := "", nodeName(v.node())
			if node == c.o.Node {
				found, err := c.disks.Find(v.Spec.Local.Path)
				if errors.Is(err, disk.ErrPending) {
					continue // it has no series before its disk is known, or known to be unknown
				}
				c.untraced.Note(v.Spec.Local.Path, err)
				device = found
			}
			send(name, BackendHostpath, node, "", v.Spec.Local.Path, device)
		case v.Spec.CSI != nil && v.Spec.CSI.Driver == lvmDriver:
			o := lvm[v.Spec.CSI.Handle]
			if o == nil {
				continue // made a moment ago, or the driver's object is already gone
			}
			device, node := "/dev/"+o.Spec.Group+"/"+v.Spec.CSI.Handle, nodeName(nodeIDLabel, o.Spec.Owner)
			kernelName, pending := c.kernelName(node, device)
			if pending {
				continue
			}
			send(name, BackendLVM, node, o.Spec.Group, device, kernelName)
			gauge(ch, localState, truth(o.Status.State == "Ready"), name, BackendLVM)
		case v.Spec.CSI != nil && v.Spec.CSI.Driver == zfsDriver:
			o := zfs[v.Spec.CSI.Handle]
			if o == nil {
				continue
			}
			set, node := path.Join(o.Spec.Pool, v.Spec.CSI.Handle), nodeName(nodeIDLabel, o.Spec.Owner)
			kernelName, pending := c.kernelName(node, "/dev/zvol/"+set)
			if pending {
				continue
			}
			send(name, BackendZFS, node, o.Spec.Pool, set, kernelName)
			gauge(ch, localState, truth(o.Status.State == "Ready"), name, BackendZFS)
		}
	}
	c.untraced.Send(ch)
	return exporterkit.Outcome(sent, c.o.Objects.Err("persistentvolumes", "lvmvolumes", "zfsvolumes"))
}

// kernelName is the kernel's name of a device on this node, which udev links to from path;
// empty on other nodes and for a ZFS data set that is no block device. It is pending until the
// first look at it.
func (c *localPV) kernelName(node, path string) (name string, pending bool) {
	if node != c.o.Node {
		return "", false
	}
	name, err := c.disks.Device(path)
	return name, errors.Is(err, disk.ErrPending)
}

func (c *localPV) Check(context.Context) []exporterkit.CheckResult { return nil }
