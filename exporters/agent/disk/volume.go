package disk

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/exporterkit"
)

// volumes is the collector "volume". It exports
//
//	plumbline_volume_info{node,device,volume,namespace,persistentvolumeclaim,claim_uid,storageclass,backend,pod}  gauge, 1
//	plumbline_volume_disk_info{node,device,volume,disk}                                                           gauge, 1
//	plumbline_volumes_without_device{node}                                                                        gauge
//	plumbline_unidentified_objects{node,kind,reason}                                                              gauge
//	plumbline_storageclass_control_info{node,storageclass}                                                        gauge, 1
//
// The first has one series for each volume that is there now, which is what joins a device's latency with the volume's
// name. A scrape reads nothing itself: volume.Node follows the mounts, so that a series is gone within two seconds
// after its volume was unmounted. The second names the disks at the bottom of the device's stack (LVM, encryption, loop
// devices). The third lists which storage classes are controls on this node, whether a volume of them is there or not.
type volumes struct {
	options  collector.Options
	info     *prometheus.Desc
	without  *prometheus.Desc
	disks    *prometheus.Desc
	controls *prometheus.Desc
}

// NewVolume returns the collector "volume".
func NewVolume(o collector.Options) (collector.Collector, error) {
	return &volumes{
		options: o,
		info: prometheus.NewDesc("plumbline_volume_info",
			"A volume that is mounted on this node, and its block device; the value is always 1. claim_uid is the UID of the claim; it is empty where no API server knows it.",
			[]string{"node", "device", "volume", "namespace", "persistentvolumeclaim", "claim_uid", "storageclass", "backend", "pod"}, nil),
		without: prometheus.NewDesc("plumbline_volumes_without_device",
			"Volumes that are mounted on this node and lie on no block device, such as those of a network file system or of ZFS: their latency is in no metric of a device.",
			[]string{"node"}, nil),
		disks: prometheus.NewDesc("plumbline_volume_disk_info",
			"A disk of this node at the bottom of a volume's stack of block devices; the value is always 1.",
			[]string{"node", "device", "volume", "disk"}, nil),
		controls: prometheus.NewDesc("plumbline_storageclass_control_info",
			"A storage class that others are compared with on this node, as only the host can slow it; the value is always 1.",
			[]string{"node", "storageclass"}, nil),
	}, nil
}

// Start implements Collector.
func (v *volumes) Start(ctx context.Context) error {
	v.options.Volumes.Start(ctx, v.options.SharedCalls())
	return nil
}

// Check implements collector.Collector.
func (v *volumes) Check() []exporterkit.CheckResult {
	_, err := v.options.Volumes.Known()
	return []exporterkit.CheckResult{{Part: "volumes", Err: err}}
}

// Close implements collector.Collector.
func (v *volumes) Close() error { return nil }

// Update sends a series for each volume that is known; one that cannot be placed is an error,
// and the others are sent all the same.
func (v *volumes) Update(ch chan<- prometheus.Metric) error {
	found, err := v.options.Volumes.Known()
	for _, f := range found {
		ch <- collector.Gauge(v.info, 1, v.options.Node, f.Disk,
			f.Volume, f.Namespace, f.PersistentVolumeClaim, f.ClaimUID, f.StorageClass, f.Backend, f.Pod)
		for _, disk := range f.Below {
			ch <- collector.Gauge(v.disks, 1, v.options.Node, f.Disk, f.Volume, disk)
		}
	}
	ch <- collector.Gauge(v.without, float64(v.options.Volumes.WithoutDevice()), v.options.Node)
	unidentified := v.options.Volumes.Unidentified()
	collector.SendUnidentified(ch, v.options.Node, collector.KindClaim, unidentified.Claims)
	collector.SendUnidentified(ch, v.options.Node, collector.KindProcess, unidentified.Processes)
	collector.SendUnidentified(ch, v.options.Node, collector.KindLine, unidentified.Lines)
	for _, class := range v.options.Controls.Classes() {
		ch <- collector.Gauge(v.controls, 1, v.options.Node, class)
	}
	return err
}
