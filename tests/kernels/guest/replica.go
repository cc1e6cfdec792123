package main

import (
	"fmt"
	"time"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
)

const (
	replicas  = 2
	requests  = 200
	depth     = 4
	blockSize = 4096
)

// measureReplicas makes requests to a volume of a real Longhorn engine and replicas. The engine sends each write to all
// replicas, and each read to one.
func measureReplicas(t *rig.Scope, a *agent, out *outcome.Outcome) {
	if !out.Replica.Works {
		return
	}
	logf("%d writes and reads of a Longhorn volume with %d replicas", requests, replicas)
	// A scope of its own: its processes end here, and leave the disk.
	t.Check(rig.Run(logf, func(t *rig.Scope) { useVolume(t, a, out) }))
}

func useVolume(t *rig.Scope, a *agent, out *outcome.Outcome) {
	v := rig.NewVolume(t, replicas)
	v.Start()
	// What an engine did before it was followed is not counted: a notice from the kernel brings that about at once, and
	// else a scan of all processes every ten seconds.
	started := time.Now()
	rig.Eventually(t, rig.DefaultTimeout, func() error {
		m, err := a.scrape()
		if n := m.Sum("plumbline_replica_processes"); err == nil && n < replicas+1 {
			err = fmt.Errorf("%v processes are followed, of %d", n, replicas+1)
		}
		return err
	})
	logf("engine and replicas are followed within %.1f s", time.Since(started).Seconds())
	v.IO(requests, depth, func(i int) error { return v.Write(int64(i)*blockSize, blockSize) })
	v.IO(requests, depth, func(i int) error { return v.Read(int64(i)*blockSize, blockSize) })
	for _, c := range []struct {
		what, metric, op string
		truth            uint64
	}{
		{"engine's writes", requestMetric, "write", replicas * requests},
		{"engine's reads", requestMetric, "read", requests},
		{"replicas' writes", serviceMetric, "write", replicas * requests},
		{"replicas' reads", serviceMetric, "read", requests},
	} {
		f := func(m agentproc.Metrics) float64 { return m.Sum(c.metric, "op", c.op) }
		counted := uint64(f(a.settled(t, float64(c.truth), f)))
		logf("%s: %d counted of %d", c.what, counted, c.truth)
		out.Requests = append(out.Requests, outcome.Count{What: c.what, Truth: c.truth, Counted: counted})
	}
}
