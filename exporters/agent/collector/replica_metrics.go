package collector

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/foreign"
)

// viewDescs are the metrics of one view of operations. The frontend's have no label address.
type viewDescs struct {
	duration, bytes, errors, unanswered, inflight, connections *prometheus.Desc
}

// Labels: volume is the storage backend's name of the volume; address is the replica's control address IP:PORT, by
// which its engine knows it (also on the replica's node), "local" or the engine's argument for a unix socket, "other"
// beyond the limit; op is one of replica.Ops. Only complete operations count: request and response both seen.
var (
	replicaLabelNames = []string{"volume", "address", "backend"}
	processLabels     = []string{"node", "volume", "backend", "role", "address"}

	replicaViews = map[replica.View]viewDescs{
		replica.ViewRequest: newViewDescs("plumbline_replica_request", "_duration_seconds", "plumbline_replica_requests_in_flight",
			"a request to a replica as the engine sees it, from its write to the read of the whole answer", replicaLabelNames),
		replica.ViewService: newViewDescs("plumbline_replica_service", "_seconds", "plumbline_replica_services_in_flight",
			"a request within the replica, from the read of the whole request to the end of the answer's write", replicaLabelNames),
		replica.ViewFrontend: newViewDescs("plumbline_volume_frontend", "_seconds", "plumbline_volume_frontend_in_flight",
			"a request of the volume's user within the engine, all replicas included", []string{"volume", "backend"}),
		viewPath: newViewDescs("plumbline_volume_path", "_seconds", "plumbline_volume_path_in_flight",
			"a request of this host to a volume's target over the network, on one path", pathLabelNames),
		viewTarget: newViewDescs("plumbline_volume_target", "_seconds", "plumbline_volume_target_in_flight",
			"a request within a volume's target in user space, the engine behind it included, from the read of its header to the end of the answer's write", []string{"volume", "backend"}),
	}

	replicaOldest = prometheus.NewDesc("plumbline_replica_oldest_request_seconds",
		"Age of the oldest request to a replica without an answer, in seconds; 0 if there is none. "+
			"Answers that have arrived and that the engine does not read are not waited for, nor those to requests of which it has sent a part only: then the engine is stalled, not the replica.", replicaLabelNames, nil)
	replicaOldestService = prometheus.NewDesc("plumbline_replica_oldest_service_seconds",
		"Age of the oldest request that the replica has not answered, in seconds, as the replica's side sees it; 0 if there is none. "+
			"Of requests that it has not even read from its socket, for how long they lie there at least, looked at each second.", replicaLabelNames, nil)
	replicaUnread = prometheus.NewDesc("plumbline_replica_service_unread_bytes",
		"Bytes of requests that have arrived at the replica and that it has not read, looked at each second; requests that it reads at once are not seen.", replicaLabelNames, nil)
	frontendOldest = prometheus.NewDesc("plumbline_volume_frontend_oldest_seconds",
		"Age of the oldest request of the volume's user that the engine has not answered, in seconds; 0 if there is none. "+
			"Of requests that it has not even read from its socket, for how long they lie there at least, looked at each second. Not for engines whose user does not speak the replicas' wire.",
		[]string{"volume", "backend"}, nil)
	frontendUnread = prometheus.NewDesc("plumbline_volume_frontend_unread_bytes",
		"Bytes of requests that the volume's user has sent to the engine and that it has not read, looked at each second; requests that it reads at once are not seen.",
		[]string{"volume", "backend"}, nil)
	processStopped = prometheus.NewDesc("plumbline_storage_process_stopped_seconds",
		"For how long the process of an engine or replica has been stopped by a signal, a tracer or the freezer, in seconds, looked at each second; 0 if it runs. "+
			"A stop from before the agent's start counts from there. address is the replica's, and empty for engines.",
		processLabels, nil)
	processCPUTime = prometheus.NewDesc("plumbline_storage_process_cpu_seconds_total",
		"CPU time of an engine's or replica's threads since the agent follows it, in seconds, read every five seconds. Without CONFIG_SCHED_INFO there is no such series. address is the replica's, and empty for engines.", processLabels, nil)
	processRunqueue = prometheus.NewDesc("plumbline_storage_process_runqueue_seconds_total",
		"Time in which an engine's or replica's threads were ready and waited for a CPU, in seconds, as plumbline_storage_process_cpu_seconds_total.", processLabels, nil)
	replicaLastAck = prometheus.NewDesc("plumbline_replica_last_ack_total",
		"Writes of the volume that this replica was the last to acknowledge.", replicaLabelNames, nil)
	replicaLastAckWait = prometheus.NewDesc("plumbline_replica_last_ack_wait_seconds_total",
		"Time writes of the volume waited for this replica alone, the last to acknowledge, after the one before it, in seconds.", replicaLabelNames, nil)
	replicaInfo = prometheus.NewDesc("plumbline_replica_info",
		"A replica process on this node; 1. replica is the storage backend's name of it, device the disk its directory is on.",
		[]string{"volume", "address", "backend", "node", "replica", "directory", "device"}, nil)
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
		`Connections and processes counted under address="other" or volume="other" because there are too many.`, []string{"wire"}, nil)
	replicaOperations = prometheus.NewDesc("plumbline_replica_operations_total",
		"Operations in the histograms of replicas, frontends and paths on this node, in all of them together: what plumbline_replica_lost_total is compared with.", []string{"wire"}, nil)
	replicaLost = prometheus.NewDesc("plumbline_replica_lost_total",
		"Events that are missing from the replica metrics, by reason.", []string{"wire", "reason"}, nil)
	replicaProblems = prometheus.NewDesc("plumbline_replica_process_errors_total",
		"Engines and replicas that could not be followed.", []string{"wire"}, nil)
	replicaRefused = prometheus.NewDesc("plumbline_replica_processes_refused_total",
		"Processes named like an engine or replica that are not looked at because their user is not root: they could take any volume's name.", []string{"wire"}, nil)
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
	if view == replica.ViewFrontend || view == viewTarget {
		return append([]string{l.Volume, l.Backend}, more...)
	}
	return append([]string{l.Volume, l.Replica, l.Backend}, more...)
}

// Update implements exporterkit.Collector. It reads the kernel's maps and what the looks in the background have found;
// it reads no file system and waits for none.
func (c *replicaCollector) Update(ch chan<- prometheus.Metric) error {
	var errs []error
	for _, f := range c.wires {
		metrics, err := f.collect()
		errs = append(errs, err)
		for _, m := range metrics {
			ch <- m
		}
		stats := bpfstats.Stats{Collector: "replica", Programs: programsOf(f.kernel.crews), Maps: map[string]*ebpf.Map{}}
		for name := range replicaMapSizes {
			stats.Maps[name] = f.kernel.collection.Maps[name]
		}
		errs = append(errs, stats.Update(ch))
	}
	without := 0
	for _, f := range c.wires {
		without += f.withoutDevice()
	}
	sendUnidentified(ch, c.node, kindReplica, map[string]int{reasonDevice: without})
	return errors.Join(errs...)
}

// withoutDevice returns how many replicas have a folder that was looked at and is on no block device that is known.
func (f *replicaFollower) withoutDevice() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.byPID {
		if p.Role == replica.Replica && p.placed && p.device == "" {
			n++
		}
	}
	return n
}

// collect returns the metrics. They are sent without the lock, so that a slow reader blocks nobody.
func (f *replicaFollower) collect() (metrics []prometheus.Metric, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	send := func(m prometheus.Metric) { metrics = append(metrics, m) }
	var errs []error
	now, err := f.sweep(time.Now(), false)
	if err != nil {
		errs = append(errs, err)
	}
	totals, err := f.sum()
	if err != nil {
		return metrics, errors.Join(append(errs, err)...)
	}
	errs = append(errs, totals.send(send, "read", "write", "unmap"))
	f.operations.add(totals.latencies)
	send(counter(replicaOperations, float64(f.operations.total), f.wire.name))
	for labels, a := range totals.acks {
		send(counter(replicaLastAck, float64(a.Last), labels.values(replica.ViewRequest)...))
		send(counter(replicaLastAckWait, float64(a.WaitNs)/1e9, labels.values(replica.ViewRequest)...))
	}
	if now != nil {
		for l, n := range now.connections {
			d := replicaViews[l.View]
			send(gauge(d.connections, float64(n), l.values(l.View)...))
			send(gauge(d.inflight, float64(now.inflight[l]), l.values(l.View)...))
			if l.View == replica.ViewRequest {
				send(gauge(replicaOldest, now.oldest[l], l.values(l.View)...))
			}
		}
		f.sendStalls(send, now)
		f.sendInfo(send, now.peers)
	}
	return metrics, errors.Join(append(errs, f.sendEvents(send))...)
}

// processSeries are the labels of a process's series, which an engine has in common with the one that takes over from it.
type processSeries struct {
	replicaLabels
	role replica.Role
}

// sendStalls reports what is stalled: what the engine has not answered its user and a replica its engine, and which
// processes are stopped.
func (f *replicaFollower) sendStalls(send func(prometheus.Metric), now *replicaNow) {
	for l := range now.connections {
		if _, ok := now.stalls[l]; !ok && l.View != replica.ViewRequest {
			now.stalls[l] = stall{}
		}
	}
	for l, s := range now.stalls {
		oldest, unread := replicaOldestService, replicaUnread
		if l.View == replica.ViewFrontend {
			oldest, unread = frontendOldest, frontendUnread
		}
		send(gauge(oldest, max(s.oldest, now.oldest[l]), l.values(l.View)...))
		send(gauge(unread, s.unread, l.values(l.View)...))
	}
	longest := map[processSeries]float64{}
	for _, n := range f.byPID {
		p := processSeries{replicaLabels{Volume: n.volume, Backend: n.Backend}, n.Role}
		if n.Role == replica.Replica {
			p.Replica = f.ownAddress(n, now.peers)
		}
		longest[p] = max(longest[p], float64(n.stopped.age)/1e9)
		if n.cpu.threads != nil {
			used, before := f.cpu[p], n.cpu.sent
			f.cpu[p] = threadCPU{used.ran + n.cpu.ran - before.ran, used.waited + n.cpu.waited - before.waited}
			n.cpu.sent = n.cpu.threadCPU
		}
	}
	maps.DeleteFunc(f.cpu, func(p processSeries, _ threadCPU) bool {
		_, there := longest[p]
		return !there
	})
	for p, age := range longest {
		labels := []string{f.options.Node, p.Volume, p.Backend, roleName(p.role), p.Replica}
		send(gauge(processStopped, age, labels...))
		if cpu, known := f.cpu[p]; known {
			send(counter(processCPUTime, float64(cpu.ran)/1e9, labels...))
			send(counter(processRunqueue, float64(cpu.waited)/1e9, labels...))
		}
	}
}

func (f *replicaFollower) sendEvents(send func(prometheus.Metric)) error {
	events, err := f.kernel.events()
	if err != nil {
		return err
	}
	name := f.wire.name
	send(counter(replicaResyncs, float64(events[replica.EventResync]), name))
	send(counter(replicaUnmatched, float64(events[replica.EventUnmatched]), name))
	send(counter(replicaUnrecognised, float64(events[replica.EventUnrecognised]), name))
	send(counter(replicaOverlaps, float64(events[replica.EventOverlap]), name))
	send(counter(replicaOverflow, float64(events[replica.EventOtherPeer]+f.overflow), name))
	send(counter(replicaProblems, float64(f.problems), name))
	send(counter(replicaRefused, float64(f.refused), name))
	for event, reason := range replicaLosses {
		send(counter(replicaLost, float64(events[event]), name, reason))
	}
	send(counter(replicaLost, float64(f.resynced), name, "resync"))
	send(counter(replicaLost, float64(f.expired), name, "write_unfinished"))
	send(counter(replicaLost, float64(f.lookErrors), name, "look_failed"))
	send(counter(replicaLost, float64(f.unwatched), name, "sockets_full"))
	return nil
}

// sendInfo reports the processes on this node.
func (f *replicaFollower) sendInfo(send func(prometheus.Metric), peers map[uint32]replica.PeerKey) {
	processes := map[[2]string]int{}
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
		send(gauge(replicaInfo, 1, l.Volume, l.Replica, l.Backend, f.options.Node, n.Instance, foreign.Path(n.Directory), n.device))
	}
	for key, count := range processes {
		send(gauge(replicaProcesses, float64(count), key[0], key[1]))
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
