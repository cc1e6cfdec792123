package disk

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit"
	diskname "github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

const (
	// deviceInterval is how often the kernel's counts are sampled.
	deviceInterval = time.Second
	// maxDevices bounds the devices with series of their own.
	maxDevices = 4096
	// leakSamples is at how many samples, a quarter of an hour of them, a device's requests must be nobody's before they
	// are a wrong count. Asynchronous I/O may wait without a blocked process: such a stall ends here in what the agent
	// reports.
	leakSamples = 900
	// maxStat bounds /proc/stat, which has a number for each interrupt.
	maxStat = 4 << 20
	// maxDiskstats bounds what is read of /proc/diskstats, whose lines have at most 300 bytes.
	maxDiskstats = 16 << 20
)

var (
	deviceInFlight = prometheus.NewDesc("plumbline_device_in_flight",
		"Requests that a block device has now, by the kernel's own count. Before Linux 6.16 a flush alone is not in it.",
		[]string{"node", "device"}, nil)
	deviceStalled = prometheus.NewDesc("plumbline_device_stalled_seconds",
		"For how long a block device has had requests and completed none, in seconds, within a second; 0 if it completes some or has none, requests that only a wrong count has (kind block_device of plumbline_unidentified_objects) aside. Its oldest request is at least this old. Nothing while the counts cannot be read.",
		[]string{"node", "device"}, nil)
	deviceOverflow = prometheus.NewDesc("plumbline_device_overflow",
		"Block devices without series, because there are too many.", nil, nil)
)

// devices is the collector "device": which block devices have requests and get nowhere. A tracer of requests reports
// them when they end; this is for those that do not. It reads the counts of /proc/diskstats once a second, which no
// device can hang, and costs a request nothing.
type devices struct {
	options collector.Options
	stop    context.CancelFunc
	done    sync.WaitGroup

	mu       sync.Mutex
	devices  map[string]*deviceState
	sampled  time.Time // when the counts were read last
	overflow int
	unread   int // lines
	err      error
}

// deviceCounts are the kernel's counts of one device: requests that it has now, and that it has completed, its own
// flushes among them; without these, requests and their bytes.
type deviceCounts struct {
	name                string
	inFlight, completed uint64
	requests, bytes     uint64
}

// diskstats reads the counts of all devices (Documentation/admin-guide/iostats.rst), and how many lines it does not
// understand. The paths to an NVMe namespace count as the namespace, which is the disk that is mounted. Discards are
// counted since Linux 4.18, flushes since 5.5.
func diskstats(procfs string) (all []deviceCounts, unread int, err error) {
	const name, reads, read, writes, written, inFlight, discards, discarded, flushes, least = 2, 3, 5, 7, 9, 11, 14, 16, 18, 14
	const sector = 512
	err = untrusted.Lines(filepath.Join(procfs, "diskstats"), maxDiskstats, func(line string) bool {
		fields := strings.Fields(line)
		if len(fields) < least {
			unread++
			return true
		}
		d := deviceCounts{name: fields[name]}
		for _, at := range []int{inFlight, reads, read, writes, written, discards, discarded, flushes} {
			if at >= len(fields) {
				break
			}
			n, err := strconv.ParseUint(fields[at], 10, 64)
			switch {
			case err != nil:
				unread++
				return true
			case at == inFlight:
				d.inFlight = n
			case at == read, at == written, at == discarded:
				d.bytes += n * sector
			case at == flushes:
				d.completed += n
			default:
				d.completed += n
				d.requests += n
			}
		}
		all = append(all, d)
		return true
	})
	return withoutPaths(all), unread, err
}

// nvmePath is the name of a path to an NVMe namespace that several controllers lead to: nvme0c1n2 leads to nvme0n2.
var nvmePath = regexp.MustCompile(`^(nvme[0-9]+)c[0-9]+(n[0-9]+)$`)

// withoutPaths removes the paths to NVMe namespaces. Before Linux 6.2 these count all requests, which are added up for
// the namespace then. Later it counts them, too.
func withoutPaths(all []deviceCounts) []deviceCounts {
	paths := map[string]deviceCounts{} // by the namespace
	all = slices.DeleteFunc(all, func(d deviceCounts) bool {
		name := nvmePath.FindStringSubmatch(d.name)
		if name == nil {
			return false
		}
		sum := paths[name[1]+name[2]]
		sum.inFlight, sum.completed = sum.inFlight+d.inFlight, sum.completed+d.completed
		sum.requests, sum.bytes = sum.requests+d.requests, sum.bytes+d.bytes
		paths[name[1]+name[2]] = sum
		return true
	})
	for i, d := range all {
		if sum, ok := paths[d.name]; ok && d.inFlight == 0 && d.completed == 0 {
			sum.name = d.name
			all[i] = sum
		}
	}
	return all
}

// deviceState is what was seen of one device.
type deviceState struct {
	inFlight, completed uint64
	// since is when the device was first seen with requests and without a completion since then.
	since time.Time
	gone  bool
	// leaked are requests that are known not to exist. While it has more, nobodys is at how many samples these were
	// nobody's, and least how many requests it had at any.
	leaked, least uint64
	nobodys       int
}

// stalled reports whether a device gets nowhere. Within two samples it may only be busy.
func (s *deviceState) stalled(now time.Time) bool {
	return !s.since.IsZero() && now.Sub(s.since) > 2*deviceInterval
}

// NewDevice returns the collector "device".
func NewDevice(o collector.Options) (collector.Collector, error) {
	return &devices{options: o, devices: map[string]*deviceState{}}, nil
}

// Start begins to sample the counts.
func (d *devices) Start(ctx context.Context) error {
	sample := func() {
		stats, unread, err := diskstats(d.options.ProcFS)
		if err != nil {
			err = fmt.Errorf("counts of block devices: %w", err)
		}
		d.update(stats, unread, err, time.Now())
	}
	sample()
	if d.err != nil {
		return d.err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.done.Go(func() { collector.Every(ctx, d.options.Log, deviceInterval, nil, sample) })
	return nil
}

// update takes over the kernel's counts.
func (d *devices) update(stats []deviceCounts, unread int, err error, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err = err; err != nil {
		return
	}
	d.sampled = now
	for _, s := range d.devices {
		s.gone = true
	}
	d.overflow, d.unread = 0, unread
	for _, s := range stats {
		if s.completed == 0 && s.inFlight == 0 {
			continue // a loop device without a file, a disk that nobody uses
		}
		state := d.devices[s.name]
		if state == nil {
			if len(d.devices) >= maxDevices {
				d.overflow++
				continue
			}
			state = &deviceState{}
			d.devices[s.name] = state
		}
		state.gone = false
		state.leaked = min(state.leaked, s.inFlight)
		switch {
		case s.inFlight == state.leaked:
			state.since = time.Time{}
		case state.since.IsZero():
			state.since, state.least, state.nobodys = now, s.inFlight, 0
		case s.completed != state.completed:
			state.since = now
		}
		state.least = min(state.least, s.inFlight)
		state.inFlight, state.completed = s.inFlight, s.completed
	}
	for name, s := range d.devices {
		if s.gone {
			delete(d.devices, name)
		}
	}
	if d.overflow+d.unread == 0 {
		d.findLeaks(now)
	}
}

// findLeaks finds devices on top of others whose count of requests is wrong, as that of md, device mapper and partitions was in
// some kernels (Linux 74672d06 mends one such case). A device may hold requests back while its members are idle (multipath without a
// path, a full thin pool), but then somebody waits for them.
func (d *devices) findLeaks(now time.Time) {
	waited, known := false, false
	for name, s := range d.devices {
		if !s.stalled(now) {
			continue
		}
		members := d.members(name)
		if len(members) == 0 {
			continue
		}
		if slices.ContainsFunc(members, func(m string) bool { member := d.devices[m]; return member != nil && !member.since.IsZero() }) {
			s.nobodys = 0
			continue
		}
		if !known {
			waited, known = d.waited(), true
		}
		if waited {
			continue
		}
		if s.nobodys++; s.nobodys >= leakSamples {
			d.options.Log.Warn("the kernel's count of a block device's requests is wrong: its members have none, and nobody waits", "device", name, "requests", s.least)
			s.leaked, s.nobodys = s.least, 0
		}
	}
}

// members returns what a device is on: the members of md and device mapper, the disk of a partition.
func (d *devices) members(name string) (all []string) {
	folder := filepath.Join(d.options.SysFS, "class", "block", diskname.Entry(name))
	entries, _ := os.ReadDir(filepath.Join(folder, "slaves"))
	for _, e := range entries {
		all = append(all, diskname.Name(e.Name()))
	}
	if whole, err := diskname.Whole(folder); err == nil && whole != name {
		all = append(all, whole)
	}
	return all
}

// waited reports whether a process of the node waits for I/O, or may.
func (d *devices) waited() bool {
	none := false
	err := untrusted.Lines(filepath.Join(d.options.ProcFS, "stat"), maxStat, func(line string) bool {
		none = none || line == "procs_blocked 0"
		return !none
	})
	return err != nil || !none
}

// Update implements exporterkit.Collector. Without counts it has no series: rules go by node_exporter's then.
func (d *devices) Update(ch chan<- prometheus.Metric) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err != nil {
		return d.err
	}
	leaks := 0
	for name, s := range d.devices {
		stalled := 0.0
		if s.leaked > 0 {
			leaks++
		}
		if s.stalled(d.sampled) {
			stalled = d.sampled.Sub(s.since).Seconds()
		}
		ch <- collector.Gauge(deviceInFlight, float64(s.inFlight), d.options.Node, name)
		ch <- collector.Gauge(deviceStalled, stalled, d.options.Node, name)
	}
	ch <- collector.Gauge(deviceOverflow, float64(d.overflow))
	collector.SendUnidentified(ch, d.options.Node, collector.KindLine, map[string]int{collector.ReasonDiskstats: d.unread})
	collector.SendUnidentified(ch, d.options.Node, collector.KindBlockDevice, map[string]int{collector.ReasonInFlight: leaks})
	return nil
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
