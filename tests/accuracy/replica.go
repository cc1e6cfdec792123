package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/rig"
)

const replicaSection = "Accuracy: replicas of a Longhorn volume"

// replicated is a volume of three replicas, one of them behind a proxy or on a slow disk, and
// the agent that measures it.
type replicated struct {
	*rig.Volume
	t     *rig.Scope
	agent *agentproc.Agent
	// proxy is before the replica far, disk under the replica slow; nil if not there.
	proxy, disk *rig.Delay
}

const (
	far, slow = 2, 1
	// writes of a round. The pause after each keeps the machine as idle as without a delay.
	writes = 100
	pause  = 2 * time.Millisecond
)

// startReplicated starts replicas at real-time priority and raises this program, which holds
// things back, to it, too: other load on the machine then waits for them, not they for it.
func startReplicated(t *rig.Scope, o options, proxied, slowed bool) *replicated {
	t.Check(rig.OwnMounts())
	punctual(t)
	v := &replicated{Volume: rig.NewVolume(t, 0), t: t}
	v.Within = rig.Punctually(t)
	for range 3 {
		v.AddReplica()
	}
	if slowed {
		r := v.Replicas[slow]
		r.Process.Kill()
		at := filepath.Join(r.Dir, "mounted")
		t.Check(os.Mkdir(at, 0o700))
		disk, err := rig.NewSlowDisk(t, r.Dir, 4*rig.VolumeSize)
		t.Check(err)
		t.Check(rig.MountExt4(t, disk.Device, at))
		r.Dir, v.disk = at, disk.Writes
		v.StartReplica(r)
	}
	if proxied {
		v.Addresses[far] = v.Network + ".99:10000"
		v.proxy = rig.StartDelayProxy(t, v.Addresses[far], v.Replicas[far].Address)
	}
	v.Start()
	v.agent = startAgent(t, o)
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		t.Check(v.Write(0, 8192))
		m := v.scrape()
		if n := m.Sum("plumbline_replica_service_seconds", "volume", v.Name, "op", "write"); n < 3 {
			return fmt.Errorf("%v writes seen at the replicas", n)
		}
		return nil
	})
	return v
}

// startAgent runs the agent until the end.
func startAgent(t *rig.Scope, o options, flags ...string) *agentproc.Agent {
	a, err := agentproc.Start(context.Background(), o.agent, flags...)
	t.Check(err)
	t.Cleanup(func() { t.Check(a.Stop()) })
	return a
}

func (v *replicated) scrape() agentproc.Metrics {
	m, err := v.agent.Scrape(context.Background())
	v.t.Check(err)
	return m
}

// settled is a scrape with nothing under way.
func (v *replicated) settled() (m agentproc.Metrics) {
	rig.Eventually(v.t, rig.DefaultTimeout, func() error {
		m = v.scrape()
		if n := m.Sum("plumbline_replica_requests_in_flight") + m.Sum("plumbline_replica_services_in_flight") + m.Sum("plumbline_volume_frontend_in_flight"); n != 0 {
			return fmt.Errorf("%v operations are under way", n)
		}
		return nil
	})
	return m
}

// round writes one after the other and returns means per write: what each replica's service
// and network, and that of the whole, took.
func (v *replicated) round(proxy, disk time.Duration) sample {
	s := sample{truth: map[string]float64{}, reading: map[string]float64{}}
	if v.proxy != nil {
		v.proxy.Set(proxy)
		v.proxy.Take()
	}
	if v.disk != nil {
		v.disk.Set(disk)
		v.disk.Take()
	}
	before := v.settled()
	v.IO(writes, 1, func(i int) error {
		defer time.Sleep(pause)
		return v.Write(int64(i)*8192, 8192)
	})
	after := v.settled()
	mean := func(name string, labels ...string) float64 {
		labels = append(labels, "volume", v.Name, "op", "write")
		return (after.Seconds(name, labels...) - before.Seconds(name, labels...)) / (after.Sum(name, labels...) - before.Sum(name, labels...))
	}
	for name, i := range map[string]int{"delayed": far, "slow": slow, "other": 0} {
		request := mean("plumbline_replica_request_duration_seconds", "address", v.Addresses[i])
		service := mean("plumbline_replica_service_seconds", "address", v.Replicas[i].Address)
		s.reading[name+" replica's round trip"], s.reading[name+" replica's service"] = request, service
		s.reading[name+" replica's network"] = request - service
	}
	s.reading["whole write"] = mean("plumbline_volume_frontend_seconds")
	if v.proxy != nil {
		s.truth["delayed replica's network"] = v.proxy.Take().Busy.Seconds() / writes
	}
	if v.disk != nil {
		s.truth["slow replica's service"] = v.disk.Take().Busy.Seconds() / writes
	}
	return s
}

// A proxy before one of three replicas holds back what goes there.
func replicaNetwork(t *rig.Scope, o options) {
	v := startReplicated(t, o, true, false)
	for _, delay := range o.sizes {
		r := compare(o.turns, func(on bool) sample { return v.round(only(on, delay), 0) })
		r.row(t, o.out, replicaSection, fmt.Sprintf("proxy holds back by %v", delay), "delayed replica's network",
			"delayed replica's service", "other replica's round trip", "whole write")
	}
}

// The disk under one of three replicas holds writes back.
func replicaDisk(t *rig.Scope, o options) {
	v := startReplicated(t, o, false, true)
	for _, delay := range o.sizes {
		r := compare(o.turns, func(on bool) sample { return v.round(0, only(on, delay)) })
		r.row(t, o.out, replicaSection, fmt.Sprintf("disk holds back by %v", delay), "slow replica's service",
			"slow replica's network", "other replica's round trip", "whole write")
	}
}

// Both at once, at different replicas.
func replicaBoth(t *rig.Scope, o options) {
	v := startReplicated(t, o, true, true)
	r := compare(o.turns, func(on bool) sample { return v.round(only(on, 8*time.Millisecond), only(on, 2*time.Millisecond)) })
	const what = "proxy by 8 ms and disk by 2 ms together: "
	r.row(t, o.out, replicaSection, what+"network", "delayed replica's network", "delayed replica's service", "other replica's round trip", "whole write")
	r.row(t, o.out, replicaSection, what+"disk", "slow replica's service", "slow replica's network", "other replica's round trip", "whole write")
}

func only(on bool, delay time.Duration) time.Duration {
	if on {
		return delay
	}
	return 0
}
