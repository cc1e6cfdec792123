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
	remoteRequests = 100
	// A link's delay is far more than a busy machine adds to a request, and of fewer requests.
	linkRequests = 10
	linkDelay    = 400 * time.Millisecond
	diskDelay    = 30 * time.Millisecond
	// Where a disk cannot be read.
	remoteBroken = 1 << 20

	// The times at both ends of a replica.
	requestMetric = "plumbline_replica_request_duration_seconds"
	serviceMetric = "plumbline_replica_service_seconds"
)

// remoteTargets are rig.NVMeTargets or rig.ISCSITargets.
type remoteTargets interface {
	Of(i int) *rig.Target
	Break(i int, offset int64)
	SlowLink(i int, delay time.Duration)
	CutLink(i int, cut bool)
	Disconnect()
}

// remotePaths are the paths to targets of the kernel's own over a storage network, each behind its own link, which are
// a volume's replicas by their names. The truth of counts is what is requested and the kernel's statistics of each
// path; the truth of delays is what a connection's first packets take, and the kernel's statistics of the disk.
type remotePaths struct {
	agent   *agent
	targets remoteTargets
	volume  string
	disks   []string // their folders in sysfs
	devices []string // and their devices
	live    string   // what the kernel calls the state of a path that is there
	out     *outcome.Remote
	// slowLink and slowDisk are which of them have these delays.
	slowLink, slowDisk int
}

// follow waits until all paths are followed: what a path did before is not counted, and it is scanned for once a
// second.
func (n *remotePaths) follow(t *rig.Scope) {
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := n.agent.scrape()
		if seen := m.Sum("plumbline_volume_path_state", "volume", n.volume, "state", n.live); err == nil && seen < float64(len(n.disks)) {
			err = fmt.Errorf("%v paths are followed, of %d", seen, len(n.disks))
		}
		return err
	})
}

// leave ends all connections, and waits until that is seen.
func (n *remotePaths) leave(t *rig.Scope) {
	n.targets.Disconnect()
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := n.agent.scrape()
		if left := m.Sum("plumbline_volume_path_state", "volume", n.volume); err == nil && left > 0 {
			err = fmt.Errorf("%v paths are still reported", left)
		}
		return err
	})
}

// use does something with a device, past the page cache, and returns how long it took on average.
func (n *remotePaths) use(t *rig.Scope, device string, what func(f *os.File, page []byte) error, times int) time.Duration {
	var took time.Duration
	t.Check(rig.Direct(device, func(f *os.File, page []byte) error {
		began := time.Now()
		for range times {
			if err := what(f, page); err != nil {
				return err
			}
		}
		took = time.Since(began)
		return nil
	}))
	return took / time.Duration(times)
}

func readOnce(f *os.File, page []byte) error {
	_, err := f.ReadAt(page, 0)
	return err
}

// exercised is what exercise does to each device.
var exercised = map[string]uint64{"write": remoteRequests, "read": remoteRequests / 2, "sync": remoteRequests / 4}

// exercise writes, reads and flushes each device.
func (n *remotePaths) exercise(t *rig.Scope) {
	for i := range n.disks {
		n.use(t, n.devices[i], func(f *os.File, page []byte) error {
			_, err := f.WriteAt(page, blockSize)
			return err
		}, remoteRequests)
		n.use(t, n.devices[i], readOnce, remoteRequests/2)
		n.use(t, n.devices[i], func(f *os.File, _ []byte) error { return f.Sync() }, remoteRequests/4)
	}
}

// exerciseAlone exercises each device until the kernel's counts of all paths are of that alone: the kernel looks for
// partitions at any time after a disk is added. It returns the agent's metrics of before, and those counts. A disk
// without a cache gets no flushes.
func (n *remotePaths) exerciseAlone(t *rig.Scope) (reported agentproc.Metrics, counted map[string]uint64) {
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		before := n.statistics(t)
		reported = n.agent.metrics(t)
		n.exercise(t)
		counted = n.statistics(t)
		for op, made := range exercised {
			counted[op] -= before[op]
			if made *= uint64(len(n.disks)); counted[op] != made && (op != "sync" || counted[op] != 0) {
				return fmt.Errorf("the kernel counted %d of %s on the paths, and %d were made: something else uses them", counted[op], op, made)
			}
		}
		return nil
	})
	return reported, counted
}

// named reads each device until both ends export it by its name. Until an end knows a name, it keeps the counts and
// exports them later: they would be taken for later ones.
func (n *remotePaths) named(t *rig.Scope, ends map[string]string, labels func(i int) []string) {
	for i := range n.disks {
		m := n.agent.metrics(t)
		n.use(t, n.devices[i], readOnce, 1)
		for end, metric := range ends {
			increase := since(m, metric, append(labels(i), "op", "read")...)
			rig.Eventually(t, rig.DefaultTimeout, func() error {
				now, err := n.agent.scrape()
				if err == nil && increase(now) == 0 {
					err = fmt.Errorf("the %s's end does not report %s's device %d", end, n.volume, i)
				}
				return err
			})
		}
	}
}

// count compares counts with what is requested, at both ends.
func (n *remotePaths) count(t *rig.Scope) {
	ends := map[string]string{"initiator": requestMetric, "target": serviceMetric}
	n.named(t, ends, n.replica)
	m, _ := n.exerciseAlone(t)
	for op, made := range exercised {
		for end, metric := range ends {
			n.compare(t, end+"'s "+op, made*uint64(len(n.disks)), since(m, metric, "volume", n.volume, "op", op))
		}
	}
}

// fail reads what a target's disk cannot read. The kernel does not try such reads again.
func (n *remotePaths) fail(t *rig.Scope) {
	const target, failing = 0, 10
	m := n.agent.metrics(t)
	n.targets.Break(target, remoteBroken)
	n.use(t, n.devices[target], func(f *os.File, page []byte) error {
		if _, err := f.ReadAt(page, remoteBroken); err == nil {
			return errors.New("a broken place can be read")
		}
		return nil
	}, failing)
	for end, metric := range map[string]string{"initiator": "plumbline_replica_request_errors_total", "target": "plumbline_replica_service_errors_total"} {
		n.compare(t, end+"'s errors", failing, since(m, metric, "volume", n.volume, "op", "read"))
	}
}

// compare notes a count once it is what was made, or has not changed for a while.
func (n *remotePaths) compare(t *rig.Scope, what string, made uint64, f func(agentproc.Metrics) float64) {
	c := outcome.Count{What: what, Truth: made}
	c.Counted = uint64(f(n.agent.settled(t, float64(made), f)))
	logf("%s: %d counted of %d", c.What, c.Counted, c.Truth)
	n.out.Commands = append(n.out.Commands, c)
}

// statistics are the kernel's counts of all paths: reads, writes without flushes, flushes
// (Documentation/block/stat.rst).
func (n *remotePaths) statistics(t *rig.Scope) map[string]uint64 { return n.statisticsOf(t, n.disks) }

func (n *remotePaths) statisticsOf(t *rig.Scope, disks []string) map[string]uint64 {
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

// delay makes one target's link slow, and compares what the agent measures of it and of another one's disk, which is
// slow.
func (n *remotePaths) delay(t *rig.Scope) {
	network := func() (network float64, waited time.Duration) {
		m := n.agent.metrics(t)
		waited = n.use(t, n.devices[n.slowLink], readOnce, linkRequests)
		request, service := n.means(t, m, n.slowLink, linkRequests)
		return request - service, waited
	}
	before := undelayed(t, network)
	alone := n.roundTrip(t, n.slowLink)
	n.targets.SlowLink(n.slowLink, linkDelay)
	truth := n.roundTrip(t, n.slowLink) - alone
	seen, waited := network()
	n.note("a link's delay", outcome.Delay{Put: linkDelay.Seconds(), Alone: before, Truth: truth, Waited: waited.Seconds(), Seen: seen})
	n.targets.SlowLink(n.slowLink, 0)

	busy, m := n.diskBusy(t, n.slowDisk), n.agent.metrics(t)
	waited = n.use(t, n.devices[n.slowDisk], readOnce, remoteRequests)
	truth = (n.diskBusy(t, n.slowDisk) - busy) / remoteRequests
	_, service := n.means(t, m, n.slowDisk, remoteRequests)
	n.note("a disk's delay", outcome.Delay{Put: diskDelay.Seconds(), Truth: truth, Waited: waited.Seconds(), Seen: service})
}

// undelayed is a link's time without its delay, of requests that their requester did not wait for: while the machine
// itself pauses, it is measured again.
func undelayed(t *rig.Scope, network func() (float64, time.Duration)) (alone float64) {
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		var waited time.Duration
		if alone, waited = network(); waited > linkDelay/5 {
			return fmt.Errorf("a request without a delay takes %v", waited)
		}
		return nil
	})
	return alone
}

// roundTrip is how long a target's machine takes to refuse a connection, on average: what a link takes here, where
// timers are late.
func (n *remotePaths) roundTrip(t *rig.Scope, i int) float64 {
	host, _, err := net.SplitHostPort(n.targets.Of(i).Address)
	t.Check(err)
	began := time.Now()
	for range linkRequests {
		if c, err := net.Dial("tcp", net.JoinHostPort(host, "9")); !errors.Is(err, unix.ECONNREFUSED) {
			t.Fatalf("connecting to nobody: %v, %v", c, err)
		}
	}
	return time.Since(began).Seconds() / linkRequests
}

// diskBusy is the kernel's sum of the times that a target's disk took for reads, in seconds.
func (n *remotePaths) diskBusy(t *rig.Scope, i int) float64 {
	text, err := os.ReadFile(filepath.Join("/sys/block", n.targets.Of(i).Disk, "stat"))
	t.Check(err)
	ms, err := strconv.ParseFloat(strings.Fields(string(text))[3], 64)
	t.Check(err)
	return ms / 1e3
}

func (n *remotePaths) note(what string, d outcome.Delay) {
	d.What = what
	logf("%s of %.0f ms: %s", what, 1e3*d.Put, d)
	n.out.Delays = append(n.out.Delays, d)
}

// means are those of so many reads since m, at the initiator's end and at the target's.
func (n *remotePaths) means(t *rig.Scope, m agentproc.Metrics, i int, reads float64) (request, service float64) {
	labels := append(n.replica(i), "op", "read")
	return n.mean(t, m, reads, requestMetric, labels...), n.mean(t, m, reads, serviceMetric, labels...)
}

// replica are a target's labels.
func (n *remotePaths) replica(i int) []string {
	return []string{"volume", n.volume, "address", n.targets.Of(i).Address}
}

// mean is a histogram's of so many requests since m, with these labels.
func (n *remotePaths) mean(t *rig.Scope, m agentproc.Metrics, requests float64, metric string, labels ...string) float64 {
	count := since(m, metric, labels...)
	now := n.agent.settled(t, requests, count)
	return (now.Seconds(metric, labels...) - m.Seconds(metric, labels...)) / count(now)
}

// since is a sum of a histogram's counts, or of counters, since m, with these labels.
func since(m agentproc.Metrics, metric string, labels ...string) func(agentproc.Metrics) float64 {
	return func(now agentproc.Metrics) float64 { return now.Sum(metric, labels...) - m.Sum(metric, labels...) }
}

// stall cuts a link while a request is under way: its age is reported for that path, and not for the replica, which has
// not received it.
func (n *remotePaths) stall(t *rig.Scope) {
	const cut, other = 0, 1
	n.targets.CutLink(cut, true)
	read := make(chan error, 1)
	go func() { read <- rig.Direct(n.devices[cut], readOnce) }()
	age := func(m agentproc.Metrics, metric string, i int) float64 {
		return m.Sum(metric, "volume", n.volume, "address", n.targets.Of(i).Address)
	}
	rig.Eventually(t, rig.DefaultTimeout, func() error {
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
		logf("a cut link: the oldest request on that path is %.1f s old", request)
		return nil
	})
	n.targets.CutLink(cut, false)
	t.Check(<-read)
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := n.agent.scrape()
		if old := age(m, "plumbline_replica_oldest_request_seconds", cut); err == nil && old > 0 {
			err = fmt.Errorf("the oldest request is %.1f s old", old)
		}
		return err
	})
}
