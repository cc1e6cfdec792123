package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	nvmeVolume   = "pvc-nvme"
	nvmeTargets  = 3
	nvmeRequests = 100
	linkDelay    = 25 * time.Millisecond
	diskDelay    = 30 * time.Millisecond
	// Where one of them cannot be read.
	nvmeBroken = 1 << 20
	// A volume as Mayastor names it.
	nvmeSharedUUID = "0f6b1e0c-7c9e-4f5a-9d5e-3a3b8f1c2d4e"
	nvmeShared     = "nqn.2019-05.io.openebs:" + nvmeSharedUUID
	// Which of them have these delays.
	slowLink, slowDisk = 1, 2
)

// measureNVMe uses three targets of the kernel's own over NVMe/TCP, each behind its own link, as an engine names its replicas. The
// truth of counts is what is asked for and the kernel's statistics of each path; that of delays what a connection's
// first packets take, and the kernel's statistics of the disk.
func measureNVMe(t *rig.Scope, a *agent, out *outcome.Outcome) {
	if !out.NVMe.Works {
		return
	}
	say("%d NVMe/TCP targets", nvmeTargets)
	t.Check(rig.Run(say, func(t *rig.Scope) { useTargets(t, a, out) }))
}

func useTargets(t *rig.Scope, a *agent, out *outcome.Outcome) {
	var names []string
	for i := range nvmeTargets {
		names = append(names, fmt.Sprintf("nqn.2023-01.io.longhorn.spdk:%s-r-0%d", nvmeVolume, i))
	}
	targets := rig.NewNVMeTargets(t, names, map[int]time.Duration{slowDisk: diskDelay})
	n := &nvmePaths{agent: a, targets: targets, disks: targets.Connect()}
	// What a path did before it was followed is not counted: it is looked for once a second.
	rig.Eventually(t, time.Minute, func() error {
		m, err := a.scrape()
		if seen := m.Sum("plumbline_volume_path_state", "volume", nvmeVolume, "state", "live"); err == nil && seen < nvmeTargets {
			err = fmt.Errorf("%v paths are followed, of %d", seen, nvmeTargets)
		}
		return err
	})
	n.count(t, out)
	n.fail(t, out)
	n.delay(t, out)
	n.stall(t)
	n.switchPaths(t, out)
	targets.Disconnect()
	rig.Eventually(t, time.Minute, func() error {
		m, err := a.scrape()
		if left := m.Sum("plumbline_volume_path_state", "volume", nvmeVolume); err == nil && left > 0 {
			err = fmt.Errorf("%v paths are still told of", left)
		}
		return err
	})
}

// nvmePaths are the paths to the targets.
type nvmePaths struct {
	agent   *agent
	targets *rig.NVMeTargets
	disks   []string // their folders in sysfs
}

// head is the block device of a path: nvme0n1 of nvme0c1n1.
func (n *nvmePaths) head(i int) string { return n.headOf(n.disks[i]) }

func (n *nvmePaths) headOf(disk string) string {
	name := filepath.Base(disk)
	if c := strings.LastIndex(name, "c"); c > 0 {
		name = name[:c] + name[strings.LastIndex(name, "n"):]
	}
	return "/dev/" + name
}

// use does something with a device, past the page cache, and returns how long it took on average.
func (n *nvmePaths) use(t *rig.Scope, device string, what func(f *os.File, page []byte) error, times int) time.Duration {
	f, err := os.OpenFile(device, os.O_RDWR|unix.O_DIRECT, 0)
	t.Check(err)
	defer f.Close()
	page, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	t.Check(err)
	defer func() { t.Check(unix.Munmap(page)) }()
	began := time.Now()
	for range times {
		t.Check(what(f, page))
	}
	return time.Since(began) / time.Duration(times)
}

func readOnce(f *os.File, page []byte) error {
	_, err := f.ReadAt(page, 0)
	return err
}

// count compares counts: with what is asked for at both ends, and with the kernel's own of each path.
func (n *nvmePaths) count(t *rig.Scope, out *outcome.Outcome) {
	before, m := n.statistics(t), n.agent.metrics(t)
	for i := range n.disks {
		n.use(t, n.head(i), func(f *os.File, page []byte) error {
			_, err := f.WriteAt(page, blockSize)
			return err
		}, nvmeRequests)
		n.use(t, n.head(i), readOnce, nvmeRequests/2)
		n.use(t, n.head(i), func(f *os.File, _ []byte) error { return f.Sync() }, nvmeRequests/4)
	}
	after := n.statistics(t)
	for op, made := range map[string]uint64{"write": nvmeRequests, "read": nvmeRequests / 2, "sync": nvmeRequests / 4} {
		if made *= nvmeTargets; after[op]-before[op] != made {
			t.Fatalf("the kernel counted %d of %s on the paths, and %d were made: something else uses them", after[op]-before[op], op, made)
		}
		for end, metric := range map[string]string{"initiator": "plumbline_replica_request_duration_seconds", "target": "plumbline_replica_service_seconds"} {
			f := func(now agentproc.Metrics) float64 {
				return now.Sum(metric, "volume", nvmeVolume, "op", op) - m.Sum(metric, "volume", nvmeVolume, "op", op)
			}
			n.compare(t, out, end+"'s "+op, made, f)
		}
	}
}

// fail reads what a target's disk cannot read. The kernel does not try such reads again.
func (n *nvmePaths) fail(t *rig.Scope, out *outcome.Outcome) {
	const target, failing = 0, 10
	m := n.agent.metrics(t)
	n.targets.Break(target, nvmeBroken)
	n.use(t, n.head(target), func(f *os.File, page []byte) error {
		if _, err := f.ReadAt(page, nvmeBroken); err == nil {
			return errors.New("a broken place can be read")
		}
		return nil
	}, failing)
	for end, metric := range map[string]string{"initiator": "plumbline_replica_request_errors_total", "target": "plumbline_replica_service_errors_total"} {
		f := func(now agentproc.Metrics) float64 {
			return now.Sum(metric, "volume", nvmeVolume, "op", "read") - m.Sum(metric, "volume", nvmeVolume, "op", "read")
		}
		n.compare(t, out, end+"'s errors", failing, f)
	}
}

// switchPaths uses a volume by two paths, one after the other: what is asked of it is counted on the path that it took.
func (n *nvmePaths) switchPaths(t *rig.Scope, out *outcome.Outcome) {
	const first, second = 0, 1
	paths := n.targets.Share(nvmeShared, first, second)
	path := func(m agentproc.Metrics, i int) float64 {
		return m.Sum("plumbline_volume_path_seconds", "volume", "pvc-"+nvmeSharedUUID, "backend", "mayastor", "path", n.targets.Of(i).Address, "op", "write")
	}
	state := func(i int, state string) {
		rig.Eventually(t, time.Minute, func() error {
			m, err := n.agent.scrape()
			if err == nil && m.Sum("plumbline_volume_path_state", "volume", "pvc-"+nvmeSharedUUID, "path", n.targets.Of(i).Address, "ana_state", state) != 1 {
				err = fmt.Errorf("the path to %s is not told as %s: %v", n.targets.Of(i).Address, state, m["plumbline_volume_path_state"])
			}
			return err
		})
	}
	write := func() {
		n.use(t, n.headOf(paths[0]), func(f *os.File, page []byte) error {
			_, err := f.WriteAt(page, 0)
			return err
		}, nvmeRequests)
	}
	for turn, use := range []int{first, second} {
		n.targets.Allow(first+second-use, false)
		write()
		state(use, "optimized")
		state(first+second-use, "inaccessible")
		rig.Eventually(t, time.Minute, func() error {
			m, err := n.agent.scrape()
			down := func(i int) float64 {
				return m.Sum("plumbline_volume_path_down_seconds", "volume", "pvc-"+nvmeSharedUUID, "path", n.targets.Of(i).Address)
			}
			if err == nil && (down(use) > 0 || down(first+second-use) < 2) {
				err = fmt.Errorf("the path in use is down for %v s, the other one for %v s", down(use), down(first+second-use))
			}
			return err
		})
		m := n.agent.metrics(t)
		before := n.statisticsOf(t, paths)
		write()
		after := n.statisticsOf(t, paths)
		if made := after["write"] - before["write"]; made != nvmeRequests {
			t.Fatalf("the kernel counted %d writes of the volume's paths, and %d were made", made, nvmeRequests)
		}
		n.compare(t, out, fmt.Sprintf("path %d's writes", turn+1), nvmeRequests, func(now agentproc.Metrics) float64 { return path(now, use) - path(m, use) })
		if other := first + second - use; path(n.agent.metrics(t), other) != path(m, other) {
			t.Fatalf("writes are told of a path that is not used")
		}
		n.targets.Allow(first+second-use, true)
	}
	state(first, "optimized")
	// What met a closed path was refused, and went out again on the other one.
	refused := n.agent.metrics(t).Sum("plumbline_volume_path_errors_total", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	n.compare(t, out, "the volume's target's writes", 4*nvmeRequests+uint64(refused), func(now agentproc.Metrics) float64 {
		return now.Sum("plumbline_volume_frontend_seconds", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	})
	n.compare(t, out, "the volume's target's refusals", uint64(refused), func(now agentproc.Metrics) float64 {
		return now.Sum("plumbline_volume_frontend_errors_total", "volume", "pvc-"+nvmeSharedUUID, "op", "write")
	})
}

// compare notes a count once it is what was made, or has not changed for a while.
func (n *nvmePaths) compare(t *rig.Scope, out *outcome.Outcome, what string, made uint64, f func(agentproc.Metrics) float64) {
	c := outcome.Count{What: what, Truth: made}
	c.Counted = uint64(f(n.agent.settled(t, float64(made), f)))
	say("%s: %d counted of %d", c.What, c.Counted, c.Truth)
	out.Commands = append(out.Commands, c)
}

// statistics are the kernel's counts of all paths: reads, writes without flushes, flushes (Documentation/block/stat.rst).
func (n *nvmePaths) statistics(t *rig.Scope) map[string]uint64 { return n.statisticsOf(t, n.disks) }

func (n *nvmePaths) statisticsOf(t *rig.Scope, disks []string) map[string]uint64 {
	sums := map[string]uint64{}
	for _, disk := range disks {
		text, err := os.ReadFile(filepath.Join(disk, "stat"))
		t.Check(err)
		fields := strings.Fields(string(text))
		for op, column := range map[string]int{"read": 0, "write": 4, "sync": 15} {
			v, err := strconv.ParseUint(fields[column], 10, 64)
			t.Check(err)
			sums[op] += v
		}
	}
	// A request that is a flush alone counts as a write, too.
	sums["write"] -= sums["sync"]
	return sums
}

// delay makes one target's link slow, and compares what the agent says of it and of another one's disk, which is slow.
func (n *nvmePaths) delay(t *rig.Scope, out *outcome.Outcome) {
	network := func(i int) float64 {
		m := n.agent.metrics(t)
		n.use(t, n.head(i), readOnce, nvmeRequests)
		request, service := n.means(t, m, i)
		return request - service
	}
	before, alone := network(slowLink), n.roundTrip(t, slowLink)
	n.targets.SlowLink(slowLink, linkDelay)
	n.note(out, "a link's delay", linkDelay, n.roundTrip(t, slowLink)-alone, network(slowLink)-before)
	n.targets.SlowLink(slowLink, 0)

	busy, m := n.diskBusy(t, slowDisk), n.agent.metrics(t)
	n.use(t, n.head(slowDisk), readOnce, nvmeRequests)
	truth := (n.diskBusy(t, slowDisk) - busy) / nvmeRequests
	_, service := n.means(t, m, slowDisk)
	n.note(out, "a disk's delay", diskDelay, truth, service)
}

// roundTrip is how long a target's machine takes to refuse a connection, on average: what a link takes here, where timers are late.
func (n *nvmePaths) roundTrip(t *rig.Scope, i int) float64 {
	host, _, err := net.SplitHostPort(n.targets.Of(i).Address)
	t.Check(err)
	began := time.Now()
	for range nvmeRequests {
		if c, err := net.Dial("tcp", net.JoinHostPort(host, "9")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connecting to nobody: %v, %v", c, err)
		}
	}
	return time.Since(began).Seconds() / nvmeRequests
}

// diskBusy is the kernel's sum of the times that a target's disk took for reads, in seconds.
func (n *nvmePaths) diskBusy(t *rig.Scope, i int) float64 {
	text, err := os.ReadFile(filepath.Join("/sys/block", n.targets.Of(i).Disk, "stat"))
	t.Check(err)
	ms, err := strconv.ParseFloat(strings.Fields(string(text))[3], 64)
	t.Check(err)
	return ms / 1e3
}

func (n *nvmePaths) note(out *outcome.Outcome, what string, put time.Duration, truth, seen float64) {
	say("%s of %s: %.3f ms seen of %.3f", what, put, 1e3*seen, 1e3*truth)
	out.Delays = append(out.Delays, outcome.Delay{What: what, Put: put.Seconds(), Truth: truth, Seen: seen})
}

// means are those of reads since m, at the initiator's end and at the target's.
func (n *nvmePaths) means(t *rig.Scope, m agentproc.Metrics, i int) (request, service float64) {
	labels := []string{"volume", nvmeVolume, "replica", n.targets.Of(i).Address, "op", "read"}
	mean := func(metric string) float64 {
		f := func(now agentproc.Metrics) float64 { return now.Sum(metric, labels...) - m.Sum(metric, labels...) }
		now := n.agent.settled(t, nvmeRequests, f)
		return (now.Seconds(metric, labels...) - m.Seconds(metric, labels...)) / f(now)
	}
	return mean("plumbline_replica_request_duration_seconds"), mean("plumbline_replica_service_seconds")
}

// stall cuts a link while a request is under way: its age is told, of that path, and not of the replica, which has not got it.
func (n *nvmePaths) stall(t *rig.Scope) {
	const cut, other = 0, 1
	n.targets.CutLink(cut, true)
	done := make(chan struct{})
	go func() {
		defer close(done)
		n.use(t, n.head(cut), readOnce, 1)
	}()
	age := func(m agentproc.Metrics, metric string, i int) float64 {
		return m.Sum(metric, "volume", nvmeVolume, "replica", n.targets.Of(i).Address)
	}
	rig.Eventually(t, time.Minute, func() error {
		m, err := n.agent.scrape()
		if err != nil {
			return err
		}
		request, service := age(m, "plumbline_replica_oldest_request_seconds", cut), age(m, "plumbline_replica_oldest_service_seconds", cut)
		if service > 0 || age(m, "plumbline_replica_oldest_request_seconds", other) > 0 {
			t.Fatalf("a cut link shows as replica %v s, another link as %v s", service, age(m, "plumbline_replica_oldest_request_seconds", other))
		}
		if request < 3 {
			return fmt.Errorf("the oldest request is %.1f s old", request)
		}
		say("a cut link: the oldest request on that path is %.1f s old", request)
		return nil
	})
	n.targets.CutLink(cut, false)
	<-done
	rig.Eventually(t, time.Minute, func() error {
		m, err := n.agent.scrape()
		if old := age(m, "plumbline_replica_oldest_request_seconds", cut); err == nil && old > 0 {
			err = fmt.Errorf("the oldest request is %.1f s old", old)
		}
		return err
	})
}
