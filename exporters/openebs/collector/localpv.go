package collector

import (
	"context"
	"errors"
	"path"

	"github.com/prometheus/client_golang/prometheus"

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
		"Whether the driver reports that the LVM or ZFS volume is ready: 1 yes, 0 no; absent if it has reported no state, as of volumes made before zfs-localpv 0.8.", []string{"volume", "backend"}, nil)
)

// errNoNode is the error of a volume whose node is not known.
var errNoNode = errors.New("no node, or more than one, has the labels of its node affinity")

// CSI drivers of the local engines.
const (
	lvmDriver = "local.csi.openebs.io"
	zfsDriver = "zfs.csi.openebs.io"
)

type lvmVolume struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Owner string `json:"ownerNodeID"`
		Group string `json:"volGroup"`
	} `json:"spec"`
	Status struct {
		State string `json:"state"`
	} `json:"status"`
}

func (*lvmVolume) UnknownValue() string { return "" }

// Shared implements kube's sharing of texts.
func (o *lvmVolume) Shared() []*string {
	return []*string{&o.Spec.Owner, &o.Spec.Group, &o.Status.State}
}

type zfsVolume struct {
	kube.Meta `json:"metadata"`
	Spec      struct {
		Owner string `json:"ownerNodeID"`
		Pool  string `json:"poolName"`
	} `json:"spec"`
	Status struct {
		State string `json:"state"`
	} `json:"status"`
}

func (*zfsVolume) UnknownValue() string { return "" }

// Shared implements kube's sharing of texts.
func (o *zfsVolume) Shared() []*string {
	return []*string{&o.Spec.Owner, &o.Spec.Pool, &o.Status.State}
}

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
	kube.Follow[lvmVolume](o.Objects, kube.Kind{Group: "local.openebs.io", Versions: []string{"v1alpha1"}, Resource: "lvmvolumes", Optional: true}, nil)
	kube.Follow[zfsVolume](o.Objects, kube.Kind{Group: "zfs.openebs.io", Versions: []string{"v1", "v1alpha1"}, Resource: "zfsvolumes", Optional: true}, nil)
	return &localPV{o, &disk.Finder{ProcFS: o.ProcFS, SysFS: o.SysFS, RootFS: o.RootFS}, disk.NewUntraced(o.Log, "localpv")}
}

func (c *localPV) Start(context.Context) error { return nil }

func (c *localPV) Update(ch chan<- prometheus.Metric) error {
	lvm := kube.All[*lvmVolume](c.o.Objects, "lvmvolumes")
	zfs := kube.All[*zfsVolume](c.o.Objects, "zfsvolumes")
	volumes := kube.All[*placed](c.o.Objects, "persistentvolumes")
	nodeName, owner := nodeNames(c.o.Objects, volumes), handled(volumes)
	sent := 0
	send := func(volume, backend, node, pool, path, device string) {
		sent++
		gauge(ch, localInfo, 1, volume, backend, node, pool, path)
		gauge(ch, exporterkit.DesiredReplicas, 1, volume, backend)
		gauge(ch, exporterkit.ReplicaInfo, 1, volume, volume, node, device, "", backend)
	}
	ready := func(volume, backend, state string) {
		if state != "" {
			gauge(ch, localState, truth(state == "Ready"), volume, backend)
		}
	}
	for name, v := range volumes {
		switch {
		case v.driver != "" && owner[[2]string{v.driver, v.handle}] != name:
			continue // released and kept: the data is another's now
		case v.driver == "":
			device, node := "", nodeName(v.on...)
			switch node {
			case "":
				c.untraced.Note(v.path, errNoNode)
			case c.o.Node:
				found, err := c.disks.Find(v.path)
				if errors.Is(err, disk.ErrPending) {
					continue // it has no series before its disk is known, or known to be unknown
				}
				c.untraced.Note(v.path, err)
				device = found
			}
			send(name, BackendHostpath, node, "", v.path, device)
		case v.driver == lvmDriver:
			o := lvm[v.handle]
			if o == nil {
				continue // made a moment ago, or the driver's object is already gone
			}
			device, node := "/dev/"+o.Spec.Group+"/"+v.handle, nodeName(nodeLabel{nodeIDLabel, o.Spec.Owner})
			kernelName, err := c.kernelName(node, device)
			if errors.Is(err, disk.ErrPending) {
				continue
			}
			c.untraced.Note(device, err)
			send(name, BackendLVM, node, o.Spec.Group, device, kernelName)
			ready(name, BackendLVM, o.Status.State)
		case v.driver == zfsDriver:
			o := zfs[v.handle]
			if o == nil {
				continue
			}
			set, node := path.Join(o.Spec.Pool, v.handle), nodeName(nodeLabel{nodeIDLabel, o.Spec.Owner})
			kernelName, err := c.kernelName(node, "/dev/zvol/"+set)
			if errors.Is(err, disk.ErrPending) {
				continue
			}
			send(name, BackendZFS, node, o.Spec.Pool, set, kernelName)
			ready(name, BackendZFS, o.Status.State)
		}
	}
	c.untraced.Send(ch)
	return exporterkit.Outcome(sent, c.o.Objects.Err("persistentvolumes", "lvmvolumes", "zfsvolumes"))
}

// kernelName is the kernel's name of a device on this node, which udev links to from path; empty on other nodes. A ZFS
// data set that is no block device has none. The error is disk.ErrPending until the first lookup of it.
func (c *localPV) kernelName(node, path string) (string, error) {
	if node != c.o.Node {
		return "", nil
	}
	return c.disks.Device(path)
}

func (c *localPV) Check(context.Context) []exporterkit.CheckResult { return nil }
