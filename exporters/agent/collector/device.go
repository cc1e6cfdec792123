package collector

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs/blockdevice"

	"github.com/plumbline/plumbline/exporters/exporterkit"
)

const (
	// deviceInterval is how often the kernel's counts are looked at.
	deviceInterval = time.Second
	// maxDevices bounds the devices with series of their own.
	maxDevices = 4096
)

var (
	deviceInFlight = prometheus.NewDesc("plumbline_device_in_flight",
		"Requests that a block device has now, by the kernel's own count. Before Linux 6.16 a flush alone is not in it.",
		[]string{"node", "device"}, nil)
	deviceStalled = prometheus.NewDesc("plumbline_device_stalled_seconds",
		"For how long a block device has had requests and completed none, in seconds, within a second; 0 if it completes some or has none. Its oldest request is at least this old.",
		[]string{"node", "device"}, nil)
	deviceOverflow = prometheus.NewDesc("plumbline_device_overflow",
		"Block devices without series, because there are too many.", nil, nil)
)

// devices is the collector "device": which block devices have requests and get nowhere. What a
// tracer of requests tells, it tells when they end; this is for those that do not. It reads the
// counts of /proc/diskstats once a second, which no device can hang, and costs a request nothing.
type devices struct {
	options Options
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	devices  map[string]*deviceState
	overflow int
	err      error
}

// deviceState is what was seen of one device.
type deviceState struct {
	inFlight, completed uint64
	// since is when the device was first seen with requests and without a completion since then.
	since time.Time
	gone  bool
}

// NewDevice returns the collector "device".
func NewDevice(o Options) (Collector, error) {
	return &devices{options: o, devices: map[string]*deviceState{}}, nil
}

// Start begins to look at the counts.
func (d *devices) Start(ctx context.Context) error {
	fs, err := blockdevice.NewFS(d.options.ProcFS, d.options.SysFS)
	if err != nil {
		return fmt.Errorf("counts of block devices: %w", err)
	}
	look := func() {
		stats, err := fs.ProcDiskstats()
		d.update(stats, err, time.Now())
	}
	look()
	if d.err != nil {
		return d.err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.done.Go(func() { every(ctx, d.options.Log, deviceInterval, nil, look) })
	return nil
}

// update takes over the kernel's counts.
func (d *devices) update(stats []blockdevice.Diskstats, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; err != nil {
		return
	}
	for _, s := range d.devices {
		s.gone = true
	}
	d.overflow = 0
	for _, s := range stats {
		completed := s.ReadIOs + s.WriteIOs + s.DiscardIOs + s.FlushRequestsCompleted
		if completed == 0 && s.IOsInProgress == 0 {
			continue // a loop device without a file, a disk that nobody uses
		}
		state := d.devices[s.DeviceName]
		if state == nil {
			if len(d.devices) >= maxDevices {
				d.overflow++
				continue
			}
			state = &deviceState{}
			d.devices[s.DeviceName] = state
		}
		state.gone = false
		switch {
		case s.IOsInProgress == 0:
			state.since = time.Time{}
		case state.since.IsZero() || completed != state.completed:
			state.since = now
		}
		state.inFlight, state.completed = s.IOsInProgress, completed
	}
	for name, s := range d.devices {
		if s.gone {
			delete(d.devices, name)
		}
	}
}

// Update implements exporterkit.Collector.
func (d *devices) Update(ch chan<- prometheus.Metric) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	for name, s := range d.devices {
		stalled := 0.0
		// Within two looks it may only be busy.
		if !s.since.IsZero() && now.Sub(s.since) > 2*deviceInterval {
			stalled = now.Sub(s.since).Seconds()
		}
		ch <- gauge(deviceInFlight, float64(s.inFlight), d.options.Node, name)
		ch <- gauge(deviceStalled, stalled, d.options.Node, name)
	}
	ch <- gauge(deviceOverflow, float64(d.overflow))
	return d.err
}

// Check implements Collector.
func (d *devices) Check() []exporterkit.CheckResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	return []exporterkit.CheckResult{{Part: "devices", Err: d.err, Note: fmt.Sprintf("%d block devices with requests so far", len(d.devices))}}
}

// Close implements Collector.
func (d *devices) Close() error {
	if d.stop != nil {
		d.stop()
	}
	d.done.Wait()
	return nil
}
