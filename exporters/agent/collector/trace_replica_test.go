package collector

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/trace"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Every commit on a Longhorn volume is followed through the engine to each replica and its disk, and a delay of one
// replica's disk is that replica's disk's in all of them.
func TestTraceReplicas(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-bridge")
	ownMounts(t)
	const slow = 1
	v := newTestVolume(t, 2)
	r := v.Replicas[slow]
	r.Process.Kill()
	r.Dir = filepath.Join(r.Dir, "mounted")
	disk := mountSlow(t, filepath.Dir(r.Dir), r.Dir)
	v.StartReplica(r)

	a := startTraced(t, TraceOptions{Sample: 1})
	m := startReplicaWire(t, testWire(v), v.ProcFS, a.options.Tracing)
	v.Start()
	m.followed(3)
	loop, err := rig.AttachLoop(t, v.Bridge())
	if err != nil {
		t.Fatal(err)
	}
	_, c := tracedServer(t, a, loop)
	device := deviceNumber(t, loop)

	const commits = 100
	commit := func() []*trace.Chain {
		begin := monotonic()
		for range commits {
			run(t, c, commitOf8KB)
		}
		chains := a.settled("traced", begin)
		wantExact(t, chains, commits*9/10)
		return chains
	}
	for _, c := range commit() {
		if c.Verdict() != trace.Exact {
			continue
		}
		found := map[trace.Layer]int{}
		for _, s := range spans(c.Root) {
			found[s.Layer]++
		}
		writes := len(writesOf(c, device))
		if writes == 0 {
			t.Error("a commit without a write of the log's device")
		}
		// Each part of a write has one operation of the engine, and that two copies, each with a disk's request or more.
		parts := found[trace.Engine]
		if parts < writes || found[trace.Network] != 2*parts || found[trace.Replica] != 2*parts || found[trace.ReplicaDevice] < 2*parts {
			t.Errorf("%d writes, with below them %v", writes, found)
		}
	}

	const delay = 20 * time.Millisecond
	disk.Writes.Set(delay)
	defer disk.Writes.Set(0)
	for _, c := range commit() {
		if share := c.Root.Shares()[trace.ReplicaDevice]; c.Verdict() == trace.Exact && share < uint64(delay) {
			t.Errorf("%d ns for the replicas' disks, of which one takes %v: %v", share, delay, c.Root.Shares())
		}
	}
	m.read().clean(t)
}
