package collector

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// volumes is the collector "volume". It exports
//
//	plumbline_volume_info{node,device,volume,namespace,persistentvolumeclaim,storageclass,backend,pod}  gauge, 1
//
// one series for each volume that is there now, which is what joins a device's latency with
// the volume's name. It reads mount tables and sysfs at each scrape, so that a series is gone
// as soon as its device is.
type volumes struct {
	options Options
	devices volume.Devices
	info    *prometheus.Desc

	mu   sync.Mutex // the file keeps its last good version
	file *volume.File
}

// NewVolume returns the collector "volume".
func NewVolume(o Options) (Collector, error) {
	v := &volumes{
		options: o,
		devices: volume.NewDevices(o.SysFS),
		info: prometheus.NewDesc("plumbline_volume_info",
			"A volume that is mounted on this node, and its block device; the value is always 1.",
			[]string{"node", "device", "volume", "namespace", "persistentvolumeclaim", "storageclass", "backend", "pod"}, nil),
	}
	if o.IdentityFile != "" {
		v.file = volume.NewFile(o.IdentityFile)
	}
	return v, nil
}

func (v *volumes) Start(context.Context) error { return nil }

func (v *volumes) Check() []CheckResult {
	_, err := volume.ReadTables(v.options.ProcFS)
	results := []CheckResult{{Part: "mount tables", Err: err}}
	if v.file != nil {
		_, err := v.identities()
		results = append(results, CheckResult{Part: "identity file " + v.options.IdentityFile, Err: err})
	}
	return results
}

func (v *volumes) Close() error { return nil }

func (v *volumes) identities() ([]volume.Identity, error) {
	if v.file == nil {
		return nil, nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.file.Identities()
}

// Update sends a series for each volume it can find; one that cannot be placed is an error,
// and the others are sent all the same.
func (v *volumes) Update(ch chan<- prometheus.Metric) error {
	identities, fileErr := v.identities()
	if len(identities) == 0 {
		return fileErr
	}
	tables, err := volume.ReadTables(v.options.ProcFS)
	if err != nil {
		return errors.Join(fileErr, err)
	}
	errs := []error{fileErr}
	for _, i := range identities {
		mount, ok := tables.At(i.Mountpoint)
		if i.Directory != "" {
			mount, ok = tables.Holding(i.Directory)
		}
		if !ok {
			continue // not mounted: the volume is not there
		}
		device, err := v.devices.Of(mount)
		if err != nil {
			errs = append(errs, fmt.Errorf("volume %s: %w", i.Volume, err))
			continue
		}
		ch <- prometheus.MustNewConstMetric(v.info, prometheus.GaugeValue, 1, v.options.Node, device,
			i.Volume, i.Namespace, i.PersistentVolumeClaim, i.StorageClass, i.Backend, i.Pod)
	}
	return errors.Join(errs...)
}
