package collector

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/nativehist"
	"github.com/plumbline/plumbline/exporters/agent/volume"
)

// viewDescs are the metrics of one view of operations. The frontend's have no label replica.
type viewDescs struct {
	duration, bytes, errors, unanswered, inflight, connections *prometheus.Desc
}

// Labels: volume is the storage engine's name of the volume; replica the control address
// IP:PORT by which the engine names the replica (also on the replica's node), "local" or
// the engine's argument for a unix socket, "other" beyond the limit; op one of
// replica.Ops. Only complete operations count: request and response both seen.
var (
	replicaLabelNames = []string{"volume", "replica", "backend"}

	replicaViews = map[replica.View]viewDescs{
		replica.ViewRequest: newViewDescs("plumbline_replica_request", "_duration_seconds", "plumbline_replica_requests_in_flight",
			"a request to a replica as the engine sees it, from its write to the read of the whole answer", replicaLabelNames),
		replica.ViewService: newViewDescs("plumbline_replica_service", "_seconds", "plumbline_replica_services_in_flight",
			"a request within the replica, from the read of the whole request to the end of the answer's write", replicaLabelNames),
		replica.ViewFrontend: newViewDescs("plumbline_volume_frontend", "_seconds", "plumbline_volume_frontend_in_flight",
			"a request of the volume's user within the engine, all replicas included", []string{"volume", "backend"}),
	}

	replicaOldest = prometheus.NewDesc("plumbline_replica_oldest_request_seconds",
		"Age of the oldest request to a replica without an answer, in seconds; 0 if there is none.", replicaLabelNames, nil)
	replicaLastAck = prometheus.NewDesc("plumbline_replica_last_ack_total",
		"Writes of the volume that this replica was the last to acknowledge.", replicaLabelNames, nil)
	replicaLastAckWait = prometheus.NewDesc("plumbline_replica_last_ack_wait_seconds_total",
		"Time writes of the volume waited for this replica alone, the last to acknowledge, after the one before it, in seconds.", replicaLabelNames, nil)
	replicaInfo = prometheus.NewDesc("plumbline_replica_info",
		"A replica process on this node; 1. instance is the storage engine's name of it, device the disk its directory is on.",
		[]string{"volume", "replica", "backend", "node", "instance", "directory", "device"}, nil)
	replicaProcesses = prometheus.NewDesc("plumbline_replica_processes",
		"Engines and replicas that are followed on this node.", []string{"backend", "role"}, nil)

	replicaResyncs = prometheus.NewDesc("plumbline_replica_resyncs_total",
		"Streams that were understood until bytes came that are no message.", []string{"wire"}, nil)
	replicaUnmatched = prometheus.NewDesc("plumbline_replica_unmatched_total",
		"Answers without a request.", []string{"wire"}, nil)
	replicaUnrecognised = prometheus.NewDesc("plumbline_replica_unrecognised_total",
		"Reads from new connections to a replica or frontend that begin with no message: another protocol, or the middle of a stream older than the agent.", []string{"wire"}, nil)
	replicaOverlaps = prometheus.NewDesc("plumbline_replica_overlapping_writes_total",
		"Writes not in plumbline_replica_last_ack_total because another one to the same extent was under way.", []string{"wire"}, nil)
	replicaOverflow = prometheus.NewDesc("plumbline_replica_label_overflow_total",
		`Connections and processes counted under replica="other" or volume="other" because there are too many.`, []string{"wire"}, nil)
	replicaLost = prometheus.NewDesc("plumbline_replica_lost_total",
		"Events that are missing from the replica metrics, by reason.", []string{"wire", "reason"}, nil)
	replicaProblems = prometheus.NewDesc("plumbline_replica_process_errors_total",
		"Engines and replicas that could not be followed.", []string{"wire"}, nil)
)

// replicaLosses are the reasons of plumbline_replica_lost_total that the kernel counts.
var replicaLosses = map[replica.Event]string{
	replica.EventLostConnection: "connections_full",
	replica.EventLostRequest:    "requests_full",
	replica.EventLostSeries:     "series_full",
	replica.EventLostGroup:      "writes_full",
	replica.EventLostFault:      "memory_unreadable",
	replica.EventLostNotice:     "notices_full",
}

func newViewDescs(prefix, unit, inflight, what string, labels []string) viewDescs {
	withOp := append(labels[:len(labels):len(labels)], "op")
	return viewDescs{
		duration:    prometheus.NewDesc(prefix+unit, "Time of "+what+", in seconds.", withOp, nil),
		bytes:       prometheus.NewDesc(prefix+"_bytes_total", "Bytes read, written or unmapped; the operation is "+what+".", withOp, nil),
		errors:      prometheus.NewDesc(prefix+"_errors_total", "Operations answered by an error (they are in the histogram, too); the operation is "+what+".", withOp, nil),
		unanswered:  prometheus.NewDesc(prefix+"_unanswered_total", "Operations whose connection ended before their answer; the operation is "+what+".", labels, nil),
		inflight:    prometheus.NewDesc(inflight, "Operations without an answer now; the operation is "+what+".", labels, nil),
		connections: prometheus.NewDesc(prefix+"_connections", "Connections now; the operation is "+what+".", labels, nil),
	}
}

// values are the label values for one view: the frontend is no replica's.
func (l replicaLabels) values(view replica.View, more ...string) []string {
	if view == replica.ViewFrontend {
		return append([]string{l.Volume, l.Backend}, more...)
	}
	return append([]string{l.Volume, l.Replica, l.Backend}, more...)
}

// Update implements exporterkit.Collector.
func (c *replicaCollector) Update(ch chan<- prometheus.Metric) error {
	var errs []error
	for _, f := range c.wires {
		errs = append(errs, f.update(ch))
		stats := bpfstats.Stats{Collector: "replica", Programs: f.kernel.collection.Programs, Maps: map[string]*ebpf.Map{}}
		for _, name := range []string{"processes", "connections", "inflight", "peers", "latencies", "writes", "last_acks"} {
			stats.Maps[name] = f.kernel.collection.Maps[name]
		}
		errs = append(errs, stats.Update(ch))
	}
	return errors.Join(errs...)
}

func (f *replicaFollower) update(ch chan<- prometheus.Metric) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	now, err := f.sweep(time.Now())
	if err != nil {
		errs = append(errs, err)
	}
	totals, err := f.sum()
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	for labels, l := range totals.latencies {
		d := replicaViews[labels.View]
		values := labels.values(labels.View, labels.Op)
		h, err := nativehist.New(d.duration, l.Slots[:], l.Classic[:], float64(l.SumNs)/1e9, l.created, values...)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ch <- h
		ch <- counter(d.errors, float64(l.Failed), values...)
		if labels.Op == "read" || labels.Op == "write" || labels.Op == "unmap" {
			ch <- counter(d.bytes, float64(l.Bytes), values...)
		}
	}
	for labels, a := range totals.acks {
		ch <- counter(replicaLastAck, float64(a.Last), labels.values(replica.ViewRequest)...)
		ch <- counter(replicaLastAckWait, float64(a.WaitNs)/1e9, labels.values(replica.ViewRequest)...)
	}
	for labels, n := range totals.unanswered {
		ch <- counter(replicaViews[labels.View].unanswered, float64(n), labels.values(labels.View)...)
	}
	if now != nil {
		for l, n := range now.connections {
			d := replicaViews[l.View]
			ch <- gauge(d.connections, float64(n), l.values(l.View)...)
			ch <- gauge(d.inflight, float64(now.inflight[l]), l.values(l.View)...)
			if l.View == replica.ViewRequest {
				ch <- gauge(replicaOldest, now.oldest[l], l.values(l.View)...)
			}
		}
		f.sendInfo(ch, now.peers)
	}
	return errors.Join(append(errs, f.sendEvents(ch))...)
}

func (f *replicaFollower) sendEvents(ch chan<- prometheus.Metric) error {
	events, err := f.kernel.events()
	if err != nil {
		return err
	}
	name := f.wire.name
	ch <- counter(replicaResyncs, float64(events[replica.EventResync]), name)
	ch <- counter(replicaUnmatched, float64(events[replica.EventUnmatched]), name)
	ch <- counter(replicaUnrecognised, float64(events[replica.EventUnrecognised]), name)
	ch <- counter(replicaOverlaps, float64(events[replica.EventOverlap]), name)
	ch <- counter(replicaOverflow, float64(events[replica.EventOtherPeer]+f.overflow), name)
	ch <- counter(replicaProblems, float64(f.problems), name)
	for event, reason := range replicaLosses {
		ch <- counter(replicaLost, float64(events[event]), name, reason)
	}
	ch <- counter(replicaLost, float64(f.resynced), name, "resync")
	ch <- counter(replicaLost, float64(f.expired), name, "write_unfinished")
	return nil
}

// sendInfo tells of the processes on this node.
func (f *replicaFollower) sendInfo(ch chan<- prometheus.Metric, peers map[uint32]replica.PeerKey) {
	processes := map[[2]string]int{}
	devices := volume.NewDevices(f.options.SysFS)
	sent := map[replicaLabels]bool{}
	for _, n := range f.byPID {
		processes[[2]string{n.Backend, roleName(n.Role)}]++
		if n.Role != replica.Replica || n.volume != n.Volume {
			continue
		}
		// Two processes of one name can only be one that replaces the other.
		l := replicaLabels{n.volume, f.ownAddress(n, peers), n.Backend}
		if l.Replica == "" || sent[l] {
			continue
		}
		sent[l] = true
		ch <- gauge(replicaInfo, 1, l.Volume, l.Replica, l.Backend, f.options.Node, n.Instance, n.Directory, f.device(devices, n))
	}
	for key, count := range processes {
		ch <- gauge(replicaProcesses, float64(count), key[0], key[1])
	}
}

// ownAddress is the address by which engines name a replica: what it listens on, or, if
// that is any address, the one an engine has connected to; empty as long as there is none.
func (f *replicaFollower) ownAddress(n *followedProcess, peers map[uint32]replica.PeerKey) string {
	if n.Unix {
		return f.localReplica(n)
	}
	if a, err := netip.ParseAddr(n.Host); err == nil && !a.IsUnspecified() {
		return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
	for number, key := range peers {
		if key.Slot == n.slot {
			return f.labels(n, replica.ViewService, number, peers).Replica
		}
	}
	return ""
}

// device names the disk a replica's directory is on; empty if it is on none (overlay,
// network file systems) or cannot be looked at.
func (f *replicaFollower) device(devices volume.Devices, n *followedProcess) string {
	var s unix.Stat_t
	path := filepath.Join(f.options.ProcFS, strconv.Itoa(n.pid), "root", n.Directory)
	if err := unix.Stat(path, &s); err != nil {
		return ""
	}
	name, err := devices.Of(volume.Mount{Point: n.Directory, Device: fmt.Sprintf("%d:%d", unix.Major(s.Dev), unix.Minor(s.Dev))})
	if err != nil {
		return ""
	}
	return name
}
