package replica

import (
	"errors"
	"maps"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Labels: volume, address and backend are those of exporters/agent/operation.
var (
	labelNames    = []string{"volume", "address", "backend"}
	processLabels = []string{"node", "volume", "backend", "role", "address"}

	replicaUnread = prometheus.NewDesc("plumbline_replica_service_unread_bytes",
		"Bytes of requests that have arrived at the replica and that it has not read, sampled each second; requests that it reads at once are not seen.", labelNames, nil)
	frontendUnread = prometheus.NewDesc("plumbline_volume_frontend_unread_bytes",
		"Bytes of requests that the volume's user has sent to the engine and that it has not read, sampled each second; requests that it reads at once are not seen.",
		[]string{"volume", "backend"}, nil)
	processStopped = prometheus.NewDesc("plumbline_storage_process_stopped_seconds",
		"For how long the process of an engine or replica has been stopped by a signal, a tracer or the freezer, in seconds, sampled each second; 0 if it runs. "+
			"A stop from before the agent's start counts from there. address is the replica's, and empty for engines.",
		processLabels, nil)
	processCPUTime = prometheus.NewDesc("plumbline_storage_process_cpu_seconds_total",
		"CPU time of an engine's or replica's threads since the agent follows it, in seconds, read every five seconds. Without CONFIG_SCHED_INFO there is no such series. address is the replica's, and empty for engines.", processLabels, nil)
	processRunqueue = prometheus.NewDesc("plumbline_storage_process_runqueue_seconds_total",
		"Time in which an engine's or replica's threads were ready and waited for a CPU, in seconds, as plumbline_storage_process_cpu_seconds_total.", processLabels, nil)
	replicaLastAck = prometheus.NewDesc("plumbline_replica_last_ack_total",
		"Writes of the volume that this replica was the last to acknowledge.", labelNames, nil)
	replicaLastAckWait = prometheus.NewDesc("plumbline_replica_last_ack_wait_seconds_total",
		"Time writes of the volume waited for this replica alone, the last to acknowledge, after the one before it, in seconds.", labelNames, nil)
	replicaProcesses = prometheus.NewDesc("plumbline_replica_processes",
		"Engines and replicas that are followed on this node.", []string{"backend", "role"}, nil)

	replicaUnrecognised = prometheus.NewDesc("plumbline_replica_unrecognised_total",
		"Reads from new connections to a replica or frontend that begin with no message: another protocol, or the middle of a stream older than the agent.", []string{"wire"}, nil)
	replicaOverlaps = prometheus.NewDesc("plumbline_replica_overlapping_writes_total",
		"Writes not in plumbline_replica_last_ack_total because another one to the same extent was under way.", []string{"wire"}, nil)
	replicaProblems = prometheus.NewDesc("plumbline_replica_process_errors_total",
		"Engines and replicas that could not be followed.", []string{"wire"}, nil)
)

// losses are the reasons of plumbline_replica_lost_total that the kernel counts.
var losses = map[bpf.Event]string{
	bpf.EventLostConnection:   "connections_full",
	bpf.EventLostRequest:      "requests_full",
	bpf.EventLostSeries:       "series_full",
	bpf.EventLostGroup:        "writes_full",
	bpf.EventLostFault:        "memory_unreadable",
	bpf.EventLostProcessEvent: "process_events_full",
}

// Update implements exporterkit.Collector. It reads the kernel's maps and what the samples in the background have
// found; it reads no file system and waits for none.
func (c *replicaCollector) Update(ch chan<- prometheus.Metric) error {
	var errs []error
	for _, f := range c.wires {
		metrics, err := f.collect()
		errs = append(errs, err)
		for _, m := range metrics {
			ch <- m
		}
		stats := bpfstats.Stats{Collector: "replica", Programs: collector.ProgramsOf(f.kernel.groups), Maps: map[string]*ebpf.Map{}}
		for name := range mapSizes {
			stats.Maps[name] = f.kernel.collection.Maps[name]
		}
		errs = append(errs, stats.Update(ch))
	}
	without := 0
	for _, f := range c.wires {
		without += f.withoutDevice()
	}
	collector.SendUnidentified(ch, c.node, collector.KindReplica, map[string]int{collector.ReasonDevice: without})
	return errors.Join(errs...)
}

// withoutDevice returns how many replicas have a folder that was resolved and is on no block device that is known.
func (f *replicaFollower) withoutDevice() (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.byPID {
		if p.Role == bpf.Replica && p.placed && p.device == "" {
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
	totals, acks, err := f.sum()
	if err != nil {
		return metrics, errors.Join(append(errs, err)...)
	}
	errs = append(errs, totals.Send(send, "read", "write", "unmap"))
	f.operations.Add(totals.Latencies)
	send(collector.Counter(operation.Count, float64(f.operations.Total), f.wire.name))
	for labels, a := range acks {
		send(collector.Counter(replicaLastAck, float64(a.Last), labels.Values(operation.ViewRequest)...))
		send(collector.Counter(replicaLastAckWait, float64(a.WaitNs)/1e9, labels.Values(operation.ViewRequest)...))
	}
	if now != nil {
		for l, n := range now.Connections {
			d := operation.Views[l.View]
			send(collector.Gauge(d.Connections, float64(n), l.Values(l.View)...))
			send(collector.Gauge(d.Inflight, float64(now.Inflight[l]), l.Values(l.View)...))
			if l.View == operation.ViewRequest {
				send(collector.Gauge(d.Oldest, now.Oldest[l], l.Values(l.View)...))
			}
		}
		f.sendStalls(send, now)
		f.sendInfo(send, now.peers)
	}
	return metrics, errors.Join(append(errs, f.sendEvents(send))...)
}

// processSeries are the labels of a process's series, which an engine has in common with the one that takes over from it.
type processSeries struct {
	operation.Labels
	role bpf.Role
}

// sendStalls reports what is stalled: what the engine has not answered its user and a replica its engine, and which
// processes are stopped.
func (f *replicaFollower) sendStalls(send func(prometheus.Metric), now *replicaGauges) {
	for l := range now.Connections {
		if _, ok := now.stalls[l]; !ok && l.View != operation.ViewRequest {
			now.stalls[l] = stall{}
		}
	}
	for l, s := range now.stalls {
		unread := replicaUnread
		if l.View == operation.ViewFrontend {
			unread = frontendUnread
		}
		send(collector.Gauge(operation.Views[l.View].Oldest, max(s.oldest, now.Oldest[l]), l.Values(l.View)...))
		send(collector.Gauge(unread, s.unread, l.Values(l.View)...))
	}
	longest := map[processSeries]float64{}
	for _, n := range f.byPID {
		p := processSeries{operation.Labels{Volume: n.volume, Backend: n.Backend}, n.Role}
		if n.Role == bpf.Replica {
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
		send(collector.Gauge(processStopped, age, labels...))
		if cpu, known := f.cpu[p]; known {
			send(collector.Counter(processCPUTime, float64(cpu.ran)/1e9, labels...))
			send(collector.Counter(processRunqueue, float64(cpu.waited)/1e9, labels...))
		}
	}
}

func (f *replicaFollower) sendEvents(send func(prometheus.Metric)) error {
	events, err := f.kernel.events()
	if err != nil {
		return err
	}
	name := f.wire.name
	send(collector.Counter(operation.Resyncs, float64(events[bpf.EventResync]), name))
	send(collector.Counter(operation.Unmatched, float64(events[bpf.EventUnmatched]), name))
	send(collector.Counter(replicaUnrecognised, float64(events[bpf.EventUnrecognised]), name))
	send(collector.Counter(replicaOverlaps, float64(events[bpf.EventOverlap]), name))
	send(collector.Counter(operation.LabelOverflow, float64(events[bpf.EventOtherPeer]+f.overflow), name))
	send(collector.Counter(replicaProblems, float64(f.problems), name))
	send(collector.Counter(operation.ProcessesRefused, float64(f.refused), name))
	for event, reason := range losses {
		send(collector.Counter(operation.Lost, float64(events[event]), name, reason))
	}
	send(collector.Counter(operation.Lost, float64(f.resynced), name, "resync"))
	send(collector.Counter(operation.Lost, float64(f.expired), name, "write_unfinished"))
	send(collector.Counter(operation.Lost, float64(f.sampleErrors), name, "sample_failed"))
	send(collector.Counter(operation.Lost, float64(f.unwatched), name, "sockets_full"))
	return nil
}

// sendInfo reports the processes on this node.
func (f *replicaFollower) sendInfo(send func(prometheus.Metric), peers map[uint32]bpf.PeerKey) {
	processes := map[[2]string]int{}
	sent := map[operation.Labels]bool{}
	for _, n := range f.byPID {
		processes[[2]string{n.Backend, roleName(n.Role)}]++
		if n.Role != bpf.Replica || n.volume != n.Volume {
			continue
		}
		// Two processes of one name can only be one that replaces the other.
		l := operation.Labels{Volume: n.volume, Replica: f.ownAddress(n, peers), Backend: n.Backend}
		if l.Replica == "" || sent[l] {
			continue
		}
		sent[l] = true
		send(collector.Gauge(operation.ReplicaInfo, 1, l.Volume, l.Replica, l.Backend, f.options.Node, n.Instance, untrusted.Path(n.Directory), n.device))
	}
	for key, count := range processes {
		send(collector.Gauge(replicaProcesses, float64(count), key[0], key[1]))
	}
}

// ownAddress is the address by which engines name a replica: what it listens on, or, if
// that is any address, the one an engine has connected to; empty as long as there is none.
func (f *replicaFollower) ownAddress(n *followedProcess, peers map[uint32]bpf.PeerKey) string {
	if n.Unix {
		return f.localReplica(n)
	}
	if a, err := netip.ParseAddr(n.Host); err == nil && !a.IsUnspecified() {
		return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
	}
	for number, key := range peers {
		if key.Slot == n.slot {
			return f.labels(n, operation.ViewService, number, peers).Replica
		}
	}
	return ""
}
