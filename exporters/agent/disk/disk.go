// Package disk holds the collectors "volume" (which block device is which volume), "device" (which one has requests and
// completes none) and "disk" (who uses which).
package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/disk"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/exporters/exporterkit"
	diskname "github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

const (
	// interval is how often the kernel's counts by cgroup are sampled.
	interval = 5 * time.Second
	// maxDiskUsers bounds --disk.users.
	maxDiskUsers = 50
)

// The labels of users: kind is pod, replica, cgroup, kernel, rest or unattributed. user is NAMESPACE/POD of a pod, its
// UID where the name is not known, a replica's name, the path of another cgroup, / of the root, and of the kernel
// metadata or writeback. volume is the replica's volume, or that of the pod's only claim on this disk.
var diskLabels = []string{"node", "device", "kind", "user", "volume"}

var (
	diskRequests = prometheus.NewDesc("plumbline_disk_user_requests_total",
		"Requests that a disk completed, by user; its own flushes are not in it. kind is pod, replica (of a volume), cgroup (another one; of the root, whose name is a slash, are the kernel's threads and processes for whose cgroup and those above it the controller io is off), kernel (of the root cgroup: file systems' metadata, writeback), rest (all users beyond the largest of the disk), or unattributed (what the disk counts and nobody is known to have done). "+
			"The rates of all add up to the disk's own in /proc/diskstats. A user's counters begin at 0 when it gets series.", diskLabels, nil)
	diskBytes = prometheus.NewDesc("plumbline_disk_user_bytes_total",
		"Bytes that a disk read, wrote and discarded, by user, as plumbline_disk_user_requests_total.", diskLabels, nil)
	diskSeconds = prometheus.NewDesc("plumbline_disk_user_seconds_total",
		"Time that a user's requests were in a disk and its driver, in seconds, each request's in full: a second of it per second is one request under way on average. Where the kernel does not record when the driver gets a request (no user of block statistics, such as writeback throttling), the time in the queue before it is in it.", diskLabels, nil)
	diskLost = prometheus.NewDesc("plumbline_disk_user_lost_total",
		"Requests whose user is not known: no room for another cgroup (usage: they are in rest), or for its path (path), or for rest itself (all: they are in unattributed), or the kernel charged it to no cgroup (charge: they are in unattributed).",
		[]string{"node", "reason"}, nil)
	diskServer = prometheus.NewDesc("plumbline_disk_user_server_info",
		"A user of disks that is a database server: its pod, or the cgroup that its requests are charged to, which others may share; 1.", []string{"node", "kind", "user", "server"}, nil)
	diskVolume = prometheus.NewDesc("plumbline_disk_user_volume_info",
		"A pod with several claims on a disk whose label volume is therefore empty, and the volume of one of them; 1.", []string{"node", "device", "kind", "user", "volume"}, nil)
	diskOverflow = prometheus.NewDesc("plumbline_disk_user_overflow",
		"Disks whose users have no series, because there are too many.", []string{"node"}, nil)
)

// losses are the values of the label reason.
var losses = map[bpf.DiskLost]string{bpf.DiskLostLOST_USAGE: "usage", bpf.DiskLostLOST_GROUP: "path", bpf.DiskLostLOST_ALL: "all",
	bpf.DiskLostLOST_CHARGE: "charge"}

// Options are the disk collector's own options.
type Options struct {
	// Users is how many users of each disk have series of their own.
	Users int
}

// disks is the collector "disk": who uses which disk. A program counts block requests by disk and cgroup; this collector
// names the cgroups and keeps the largest.
type disks struct {
	options    collector.Options
	collection *ebpf.Collection
	program    io.Closer
	stats      bpfstats.Stats
	stop       context.CancelFunc
	done       sync.WaitGroup

	// maxUsages is how many pairs of a disk and a cgroup the kernel counts; 0 is as many as the object has.
	maxUsages uint32
	// before are the kernel's counts at the sample before, by its key; idle since when they have been the same.
	before map[bpf.DiskUsageKey]diskBefore
	// groups are who the cgroups are.
	groups map[uint64]diskUserID
	// unused are the cgroups whose paths the kernel keeps and that had no counts at the sample before.
	unused map[uint64]bool
	// processes are the bytes of replicas' processes at the sample before.
	processes map[collector.PlacedReplica]float64

	mu     sync.Mutex
	ledger *diskLedger
	pods   map[string]pod.Pod
	// servers are the users that the database servers' processes are.
	servers map[int]diskUserID
	// exported is what series have, and counted the users that are in it: a pod that takes the place of one of its name
	// goes on counting in its series.
	exported map[diskSeries]diskUse
	// volumes are the pods with several claims on a disk, and the volume of each.
	volumes map[diskSeries]bool
	counted map[diskOf]diskUser
	lost    []uint64
	err     error
}

// diskSeries are the labels of a series; diskOf is a user of a disk.
type (
	diskSeries struct{ device, kind, user, volume string }
	diskOf     struct {
		device string
		user   diskUserID
	}
)

// diskBefore is the kernel's count at the sample before.
type diskBefore struct {
	usage bpf.DiskUsage
	since time.Time
}

// NewDisk returns the collector "disk".
func NewDisk(o collector.Options, own Options) (collector.Collector, error) {
	if own.Users < 0 || own.Users > maxDiskUsers {
		return nil, fmt.Errorf("--disk.users is %d; it must be from 0 to %d", own.Users, maxDiskUsers)
	}
	return &disks{options: o, ledger: newLedger(own.Users), before: map[bpf.DiskUsageKey]diskBefore{},
		groups: map[uint64]diskUserID{}, processes: map[collector.PlacedReplica]float64{}, lost: make([]uint64, bpf.DiskLostLOSSES)}, nil
}

// Start begins to count.
func (d *disks) Start(ctx context.Context) error {
	if err := d.attach(); err != nil {
		return err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.done.Go(func() { collector.Every(ctx, d.options.Log, interval, nil, func() { d.sample(time.Now()) }) })
	return nil
}

// attach makes the kernel count.
func (d *disks) attach() error {
	this, err := platform.Find(d.options.AttachMode)
	if err != nil {
		return err
	}
	if err := this.Features.Unavailable(platform.DiskUsers); err != nil {
		return err
	}
	spec, err := bpf.LoadDisk()
	if err != nil {
		return fmt.Errorf("reading BPF programs: %w", err)
	}
	if d.maxUsages > 0 {
		spec.Maps[bpf.DiskMapUsages].MaxEntries = d.maxUsages
	}
	if d.collection, err = ebpf.NewCollection(spec); err != nil {
		err = fmt.Errorf("loading BPF programs: %w", platform.Explain(err))
		this.Features.SetUnavailable(platform.DiskUsers, err)
		return err
	}
	const name = bpf.DiskProgDiskRequestEnds
	if d.program, err = collector.AttachTrace(spec.Programs[name], d.collection.Programs[name]); err != nil {
		this.Features.SetUnavailable(platform.DiskUsers, err)
		return errors.Join(fmt.Errorf("attaching BPF program %s: %w", name, platform.Explain(err)), d.Close())
	}
	d.stats = bpfstats.Stats{Collector: "disk", Programs: map[string]bpfstats.Program{name: platform.ProgramGroups(spec, d.collection)[name]},
		Maps: map[string]*ebpf.Map{bpf.DiskMapUsages: d.collection.Maps[bpf.DiskMapUsages], bpf.DiskMapGroups: d.collection.Maps[bpf.DiskMapGroups]}}
	return nil
}

// sample takes over the kernel's counts.
func (d *disks) sample(now time.Time) {
	used, err := d.used(now)
	// At once: what ends in between is nobody's. Lines that are not understood are counted by the collector device.
	stats, _, statsErr := diskstats(d.options.ProcFS)
	splitReplicas(used, d.replicas(used))
	servers := d.runningServers()
	lost := make([]uint64, bpf.DiskLostLOSSES)
	lostErr := collector.AddEvents(d.collection.Maps[bpf.DiskMapLosses], lost)

	uids := func() []string {
		d.mu.Lock()
		defer d.mu.Unlock() // also after a panic
		d.ledger.add(now, used)
		d.ledger.compare(stats)
		d.servers, d.lost, d.err = servers, lost, errors.Join(err, statsErr, lostErr)
		return d.ledger.listedPods()
	}()
	if d.options.Pods == nil {
		return
	}
	found := d.options.Pods.Find(uids)
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, uid := range uids {
		// A pod that is gone keeps its name.
		if before, known := d.pods[uid]; known {
			if _, still := found[uid]; !still {
				found[uid] = before
			}
		}
	}
	d.pods = found
}

// runningServers returns which users the database servers' processes are.
func (d *disks) runningServers() map[int]diskUserID {
	all := map[int]diskUserID{}
	for _, s := range d.options.Servers.All() {
		if path, _, err := blockCgroup(filepath.Join(d.options.ProcFS, strconv.Itoa(s.Pid), "cgroup")); err == nil && path != "" {
			all[s.Pid] = d.userOfCgroup(path)
		}
	}
	return all
}

// used returns what users did since the sample before.
func (d *disks) used(now time.Time) (map[string]map[diskUserID]diskUse, error) {
	counts, err := collector.ReadMap[bpf.DiskUsageKey, bpf.DiskUsage](d.collection.Maps[bpf.DiskMapUsages])
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", bpf.DiskMapUsages, err)
	}
	used := map[string]map[diskUserID]diskUse{}
	cgroups := map[uint64]bool{}
	for key, usage := range counts {
		before, known := d.before[key]
		if !known {
			before.since = now
			d.before[key] = before
		}
		other := bpf.DiskSource(key.Source) == bpf.DiskSourceSOURCE_OTHER // it is there before it is needed
		if usage == before.usage && now.Sub(before.since) >= idleTimeout && !other {
			// What is counted right now is nobody's.
			_ = d.collection.Maps[bpf.DiskMapUsages].Delete(key)
			delete(d.before, key)
			continue
		}
		cgroups[key.Cgroup] = true
		if usage == before.usage {
			continue
		}
		d.before[key] = diskBefore{usage, now}
		device := diskname.Name(untrusted.Text(collector.Text(key.Device[:]), untrusted.MaxLabel))
		if used[device] == nil {
			used[device] = map[diskUserID]diskUse{}
		}
		id, named := d.user(key)
		if !named {
			// Its next request has the path looked up again.
			_ = d.collection.Maps[bpf.DiskMapUsages].Delete(key)
			delete(d.before, key)
		}
		sum := used[device][id]
		sum.add(diskUse{
			requests: float64(usage.Requests - before.usage.Requests),
			bytes:    float64(usage.Bytes - before.usage.Bytes),
			seconds:  float64(usage.Ns-before.usage.Ns) / 1e9,
		})
		used[device][id] = sum
	}
	return used, d.forgetPaths(cgroups)
}

// forgetPaths removes the paths of cgroups without counts: a path is made before the counts are.
func (d *disks) forgetPaths(counted map[uint64]bool) error {
	paths := d.collection.Maps[bpf.DiskMapGroups]
	unused := map[uint64]bool{}
	var cgroup uint64
	err := paths.NextKey(nil, &cgroup)
	for n := paths.MaxEntries(); err == nil && n > 0; n-- {
		if !counted[cgroup] {
			unused[cgroup] = true
		}
		err = paths.NextKey(cgroup, &cgroup)
	}
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		return fmt.Errorf("map %s: %w", bpf.DiskMapGroups, err)
	}
	for cgroup := range unused {
		if d.unused[cgroup] {
			_ = paths.Delete(cgroup)
			delete(d.groups, cgroup)
			delete(unused, cgroup)
		}
	}
	d.unused = unused
	return nil
}

// user returns who a key of the kernel's is; named is false if the kernel has no path of it.
func (d *disks) user(key bpf.DiskUsageKey) (id diskUserID, named bool) {
	switch bpf.DiskSource(key.Source) {
	case bpf.DiskSourceSOURCE_CGROUP:
	case bpf.DiskSourceSOURCE_METADATA:
		return diskUserID{kind: kernel, id: "metadata"}, true
	case bpf.DiskSourceSOURCE_WRITEBACK:
		return diskUserID{kind: kernel, id: "writeback"}, true
	case bpf.DiskSourceSOURCE_ROOT:
		return diskUserID{kind: diskCgroup, id: rootCgroup}, true
	default:
		return diskUserID{kind: diskRest}, true
	}
	if id, known := d.groups[key.Cgroup]; known {
		return id, true
	}
	var group bpf.DiskGroup
	if err := d.collection.Maps[bpf.DiskMapGroups].Lookup(key.Cgroup, &group); err != nil {
		return diskUserID{kind: diskRest}, false
	}
	id = diskUserID{kind: diskRest} // too deep, or below one that root does not own
	if group.Levels > 0 {
		var path strings.Builder
		for i := range min(int(group.Levels), len(group.Names)) {
			path.WriteByte('/')
			path.WriteString(collector.Text(group.Names[i][:]))
		}
		id = d.userOfCgroup(path.String())
	}
	if id.kind != diskCgroup { // a container's pod may be listed yet
		d.groups[key.Cgroup] = id
	}
	return id, true
}

// userOfCgroup returns who the cgroup with a path is, which only root made.
func (d *disks) userOfCgroup(path string) diskUserID {
	if id, ok := d.options.Pods.InGroup(path); ok {
		return diskUserID{kind: diskPod, id: id.UID}
	}
	path = strings.Trim(path, "/")
	if path == "" {
		path = rootCgroup
	}
	return diskUserID{kind: diskCgroup, id: untrusted.Text(path, untrusted.MaxLabel)}
}

// replicas returns what replicas' processes and their sync agents did on storage since the sample before, and in which
// users.
func (d *disks) replicas(used map[string]map[diskUserID]diskUse) (all []replicaBytes) {
	now := map[collector.PlacedReplica]float64{}
	for _, r := range d.options.Replicas.All() {
		process := filepath.Join(d.options.ProcFS, strconv.Itoa(r.Pid))
		if _, _, start, err := collector.ProcessStat(process); err != nil || start != r.Start {
			continue // another process has its number now
		}
		bytes, err := storageBytes(filepath.Join(process, "io"))
		if err != nil {
			continue // it has ended, or the kernel does not count: then its cgroup has it
		}
		now[r] = bytes
		before, known := d.processes[r]
		if !known || bytes <= before {
			continue
		}
		path, _, err := blockCgroup(filepath.Join(process, "cgroup"))
		if err != nil {
			continue
		}
		group, _ := nearest(d.userOfCgroup(path), func(id diskUserID) bool { _, there := used[r.Device][id]; return there })
		all = append(all, replicaBytes{device: r.Device, group: group, replica: diskUserID{diskReplica, r.Name, r.Volume}, bytes: bytes - before})
	}
	d.processes = now
	return all
}

// storageBytes returns what a process caused to be read from and written to storage, by its /proc/PID/io.
func storageBytes(file string) (sum float64, err error) {
	const most = 4096
	found := 0
	err = untrusted.Lines(file, most, func(line string) bool {
		name, value, _ := strings.Cut(line, ": ")
		if name == "read_bytes" || name == "write_bytes" {
			n, parseErr := strconv.ParseUint(value, 10, 64)
			if parseErr == nil {
				sum += float64(n)
				found++
			}
		}
		return true
	})
	if err == nil && found != 2 {
		err = fmt.Errorf("%s has no read_bytes and write_bytes", file)
	}
	return sum, err
}

// blockCgroup returns the path of the cgroup that a process's block requests are charged to: version 1's of blkio, if
// there is one, else version 2's.
func blockCgroup(file string) (path string, first bool, err error) {
	const most = 64 << 10
	err = untrusted.Lines(file, most, func(line string) bool {
		_, rest, _ := strings.Cut(line, ":")
		controllers, at, _ := strings.Cut(rest, ":")
		switch {
		case strings.Contains(","+controllers+",", ",blkio,"):
			path, first = at, true
			return false
		case controllers == "":
			path = at
		}
		return true
	})
	// Seen from a cgroup namespace of the agent's own, what is above it is dots.
	for strings.HasPrefix(path, "/../") {
		path = path[len("/.."):]
	}
	return path, first, err
}

// listedPods returns the UIDs of pods with series.
func (l *diskLedger) listedPods() (uids []string) {
	for _, disk := range l.disks {
		for id, user := range disk.users {
			if user.listed() && id.kind == diskPod {
				uids = append(uids, id.id)
			}
		}
	}
	return uids
}

// Update implements exporterkit.Collector.
func (d *disks) Update(ch chan<- prometheus.Metric) error {
	var volumes []volume.Found
	if d.options.Volumes != nil {
		volumes, _ = d.options.Volumes.Known() // the collector volume reports what is wrong with them
	}
	servers := d.options.Servers.All() // by their labels of now
	d.mu.Lock()
	defer d.mu.Unlock()
	d.export(volumes)
	for l, u := range d.exported {
		d.send(ch, l, u)
	}
	for name, disk := range d.ledger.disks {
		d.send(ch, diskSeries{device: name, kind: diskRest}, disk.rest)
		d.send(ch, diskSeries{device: name, kind: unattributed}, disk.without)
	}
	for l := range d.volumes {
		ch <- collector.Gauge(diskVolume, 1, d.options.Node, l.device, l.kind, l.user, l.volume)
	}
	for label, user := range d.sameServers(servers) {
		ch <- collector.Gauge(diskServer, 1, d.options.Node, user.kind, user.id, label)
	}
	for reason, name := range losses {
		ch <- collector.Counter(diskLost, float64(d.lost[reason]), d.options.Node, name)
	}
	ch <- collector.Gauge(diskOverflow, float64(d.ledger.overflow), d.options.Node)
	return errors.Join(d.err, d.stats.Update(ch))
}

func (d *disks) send(ch chan<- prometheus.Metric, l diskSeries, u diskUse) {
	labels := []string{d.options.Node, l.device, l.kind, l.user, l.volume}
	ch <- collector.Counter(diskRequests, u.requests, labels...)
	ch <- collector.Counter(diskBytes, u.bytes, labels...)
	if l.kind != unattributed {
		ch <- collector.Counter(diskSeconds, u.seconds, labels...)
	}
}

// export brings what series have up to date.
func (d *disks) export(volumes []volume.Found) {
	d.volumes = map[diskSeries]bool{}
	exported, counted := map[diskSeries]diskUse{}, map[diskOf]diskUser{}
	for device, disk := range d.ledger.disks {
		for id, user := range disk.users {
			if !user.listed() {
				continue
			}
			l := diskSeries{device, id.kind, id.id, id.volume}
			if id.kind == diskPod {
				var of []string
				if l.user, of = podOnDisk(id.id, d.pods, device, volumes); len(of) == 1 {
					l.volume = of[0]
				} else {
					for _, v := range of {
						d.volumes[diskSeries{device, id.kind, l.user, v}] = true
					}
				}
			}
			sum, begun := exported[l]
			if !begun {
				sum = d.exported[l]
			}
			more, of := user.total, diskOf{device, id}
			if before := d.counted[of]; before.since == user.since {
				more.add(before.total.part(-1))
			}
			sum.add(more)
			exported[l], counted[of] = sum, *user
		}
	}
	d.exported, d.counted = exported, counted
}

// sameServers returns the users with series that are database servers, as they are called there, by the servers' labels.
func (d *disks) sameServers(servers []collector.RunningServer) map[string]diskUserID {
	listed := map[diskUserID]bool{}
	for _, disk := range d.ledger.disks {
		for id, user := range disk.users {
			listed[id] = listed[id] || user.listed()
		}
	}
	same := map[string]diskUserID{}
	for _, s := range servers {
		id, known := d.servers[s.Pid]
		user, ok := nearest(id, func(id diskUserID) bool { return listed[id] })
		if !known || !ok {
			continue
		}
		if user.kind == diskPod {
			user.id, _ = podOnDisk(user.id, d.pods, "", nil)
		}
		same[s.Label] = user
	}
	return same
}

// podOnDisk returns the name of a pod, its UID while that is not known, and the volumes of its claims on a disk.
func podOnDisk(uid string, pods map[string]pod.Pod, device string, volumes []volume.Found) (name string, of []string) {
	p, known := pods[uid]
	if !known {
		return "uid:" + uid, nil
	}
	for _, v := range volumes {
		if v.Namespace != p.Namespace || !slices.Contains(p.Claims, v.PersistentVolumeClaim) || v.Disk != device && !slices.Contains(v.Below, device) {
			continue
		}
		of = append(of, v.Volume)
	}
	return p.Namespace + "/" + p.Name, of
}

// Check implements Collector.
func (d *disks) Check() []exporterkit.CheckResult {
	r := exporterkit.CheckResult{Part: "disk: program " + bpf.DiskProgDiskRequestEnds}
	if _, first, err := blockCgroup(filepath.Join(d.options.ProcFS, "self", "cgroup")); err == nil && first {
		r.Note = "cgroup v1: writeback counts as the kernel's, not as that of who wrote"
	}
	return []exporterkit.CheckResult{r}
}

// Close implements Collector.
func (d *disks) Close() error {
	if d.stop != nil {
		d.stop()
	}
	d.done.Wait()
	var err error
	if d.program != nil {
		err = d.program.Close()
	}
	if d.collection != nil {
		d.collection.Close()
	}
	return err
}
