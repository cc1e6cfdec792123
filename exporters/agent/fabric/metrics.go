package fabric

import (
	"errors"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/fabric"
	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/remote"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// Labels: volume is the storage backend's name of the volume; path the address of the volume's target,
// HOST:PORT; device what the machine calls the volume, whatever its path.
var (
	targetProcesses = prometheus.NewDesc("plumbline_volume_target_processes",
		"Processes of this node whose sockets are followed because they are targets in user space, by their names; wire is nvme (over TCP) or iscsi. Missing where there was none since the agent's start.", []string{"node", "wire"}, nil)
	pathInfo = prometheus.NewDesc("plumbline_volume_path_info",
		"A path of this host to a volume or to a replica over NVMe over Fabrics or iSCSI; 1. replica is empty for a volume, device what this host uses, controller the controller or the session, subsystem the target's NQN or IQN.",
		[]string{"volume", "path", "backend", "node", "replica", "device", "controller", "transport", "subsystem"}, nil)
	pathState = prometheus.NewDesc("plumbline_volume_path_state",
		"The state that a path is in, as the kernel reports it once a second; 1. state is the controller's (live, connecting, …) or the iSCSI session's (logged_in, failed, free), ana_state the path's (optimized, non-optimized, inaccessible, …; of iSCSI active/optimized, standby, …), empty without multipathing.",
		[]string{"volume", "path", "backend", "node", "device", "controller", "state", "ana_state"}, nil)
	pathDown = prometheus.NewDesc("plumbline_volume_path_down_seconds",
		"For how long no command can go by this path, in seconds, read each second: its controller is not live, its session not logged in, or the target has closed the path (ana_state inaccessible, persistent-loss or change; standby, unavailable, offline or transitioning); 0 if it is usable. "+
			"What waits for a path is in no other metric of the path.",
		[]string{"volume", "path", "backend", "node", "device", "controller"}, nil)
)

// collect returns the metrics. They are sent without the lock.
func (c *fabricCollector) collect() (metrics []prometheus.Metric, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	send := func(m prometheus.Metric) { metrics = append(metrics, m) }
	totals := c.totals.Copy()
	errs := []error{c.err}
	now := operation.NewGauges()
	whole := true
	for _, side := range c.sides {
		err := side.add(totals, now)
		whole = whole && err == nil
		errs = append(errs, side.err, err)
		m, err := side.costs()
		metrics, errs = append(metrics, m...), append(errs, err)
	}
	// A side that could not be read is not gone: without it the counts would seem to fall. Those of what is gone are
	// the sides' together, so none are sent then, of no side.
	if whole {
		c.operations.Add(totals.Latencies)
		errs = append(errs, totals.Send(send, "read", "write"))
	}
	send(collector.Counter(operation.Count, float64(c.operations.Total), c.wire.name))
	for l, n := range now.Inflight {
		send(collector.Gauge(operation.Views[l.View].Inflight, float64(n), l.Values(l.View)...))
		send(collector.Gauge(operation.Views[l.View].Oldest, now.Oldest[l], l.Values(l.View)...))
	}
	for _, p := range c.paths {
		// Also without any command so far.
		l := c.pathLabels(p)
		now.Connections[l] += 0
		if p.Live {
			now.Connections[l]++
		}
	}
	if c.userTargets != nil && c.userTargets.concerned() {
		for _, p := range c.userTargets.peers {
			now.Connections[p.ViewLabels]++
		}
		send(collector.Gauge(targetProcesses, float64(len(c.userTargets.followed)), c.options.Node, c.wire.name))
	}
	c.sendInfo(send)
	for l, n := range now.Connections {
		send(collector.Gauge(operation.Views[l.View].Connections, float64(n), l.Values(l.View)...))
	}
	errs = append(errs, c.initiator.sendLosses(send), c.target.sendLosses(send))
	// Few nodes have a target in user space: without one there is nothing to lose.
	if c.userTargets != nil && c.userTargets.concerned() {
		errs = append(errs, c.userTargets.sendLosses(send), c.userTargets.sendEvents(send))
	}
	return metrics, errors.Join(errs...)
}

// costs are what the side's programs and maps take.
func (s *fabricSide) costs() (metrics []prometheus.Metric, err error) {
	if s.kernel == nil {
		return nil, nil
	}
	stats := bpfstats.Stats{Collector: s.wire.name, Programs: map[string]bpfstats.Program{}, Maps: map[string]*ebpf.Map{}}
	for name, p := range s.kernel.programs {
		stats.Programs[name] = p
	}
	for name := range s.kernel.sizes {
		stats.Maps[strings.ReplaceAll(s.name, "-", "_")+"_"+name] = s.kernel.collection.Maps[name]
	}
	ch := make(chan prometheus.Metric)
	go func() {
		defer close(ch)
		err = stats.Update(ch)
	}()
	for m := range ch {
		metrics = append(metrics, m)
	}
	return metrics, err
}

// add adds what this side counts now.
func (s *fabricSide) add(totals *operation.Totals, now operation.Gauges) error {
	if s.kernel == nil {
		return nil
	}
	latencies, err := collector.ReadMap[bpf.LatencyKey, operation.Latency](s.kernel.collection.Maps["latencies"])
	if err != nil {
		return err
	}
	created := time.Now()
	for key, l := range latencies {
		if s.peers[key.Number] == nil && key.Number != 0 {
			continue // it has no name yet
		}
		labels := s.labels(key)
		s.lastSeen[labels.Labels] = created
		// A histogram keeps the time it was first seen at.
		s.totals.AddLatency(labels, &operation.Latency{}, created)
		totals.AddLatency(labels, &l, s.totals.Latencies[labels].Created)
	}
	given, err := collector.ReadMap[uint32, uint64](s.kernel.collection.Maps["unanswered"])
	if err != nil {
		return err
	}
	for number, p := range s.peers {
		now.Inflight[p.ViewLabels] += 0
		if n := given[number]; n > 0 {
			totals.Unanswered[p.ViewLabels] += n
		}
	}
	operations, err := s.operations()
	if err != nil {
		return err
	}
	clock := s.clock()
	for _, o := range operations {
		if p := s.peers[o.Number]; p != nil {
			now.Inflight[p.ViewLabels]++
			now.Oldest[p.ViewLabels] = max(now.Oldest[p.ViewLabels], float64(clock-min(clock, o.Start))/1e9)
		}
	}
	return nil
}

// sendInfo reports the paths, and the replicas that are served here.
func (c *fabricCollector) sendInfo(send func(prometheus.Metric)) {
	clock := time.Now()
	for _, p := range c.paths {
		l := c.pathLabels(p)
		named := ""
		if l.View == operation.ViewRequest {
			named = l.Replica
		}
		down := 0.0
		if since, ok := c.down[p.Disk]; ok {
			down = clock.Sub(since).Seconds()
		}
		send(collector.Gauge(pathInfo, 1, l.Volume, l.Replica, l.Backend, c.options.Node, named, p.Head, p.Controller, p.Transport, untrusted.Text(p.Subsystem, 223)))
		send(collector.Gauge(pathState, 1, l.Volume, l.Replica, l.Backend, c.options.Node, p.Head, p.Controller, p.State, p.Access))
		send(collector.Gauge(pathDown, down, l.Volume, l.Replica, l.Backend, c.options.Node, p.Head, p.Controller))
	}
	sent := map[operation.Labels]bool{}
	for _, side := range c.sides {
		for _, p := range side.peers {
			if p.View != operation.ViewService || p.Volume == "other" || sent[p.Labels] {
				continue
			}
			sent[p.Labels] = true
			send(collector.Gauge(operation.ReplicaInfo, 1, p.Volume, p.Replica, p.Backend, c.options.Node, remote.Instance(p.subsystem), untrusted.Path(p.backing.Path), p.backing.Device))
		}
	}
}

func (s *fabricSide) sendLosses(send func(prometheus.Metric)) error {
	events := s.events
	var err error
	if s.kernel != nil {
		var counted [bpf.Events]uint64
		counted, err = s.kernel.events()
		for i, n := range counted {
			events[i] += n
		}
	}
	wire := s.wire.name + "-" + s.name
	send(collector.Counter(operation.Unmatched, float64(events[bpf.EventUnmatched]), wire))
	send(collector.Counter(operation.LabelOverflow, float64(events[bpf.EventOther]+s.overflowed), wire))
	for reason, n := range map[string]uint64{
		"requests_full": events[bpf.EventLostOperation],
		"series_full":   events[bpf.EventLostSeries],
		"end_unseen":    events[bpf.EventReplaced] + s.unseen,
		"path_nameless": s.nameless,
	} {
		send(collector.Counter(operation.Lost, float64(n), wire, reason))
	}
	return err
}
