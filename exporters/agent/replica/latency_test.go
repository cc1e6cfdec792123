package replica

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// replicaMeans are the means of one replica's writes, in seconds.
type replicaMeans struct{ request, service float64 }

// network is the part of the round trip outside the replica.
func (m replicaMeans) network() float64 { return m.request - m.service }

func (m replicaMeans) minus(o replicaMeans) replicaMeans {
	return replicaMeans{m.request - o.request, m.service - o.service}
}

// testRound is a number of writes, one after the other.
type testRound struct {
	replicas []replicaMeans
	frontend float64
	last     []float64 // writes each replica was the last to acknowledge, of all
	held     float64   // what the disturbance held back, mean
}

// round writes with a pause after each write, so that the machine idles between them whether
// something is held back or not: what a wake-up costs must not count as a difference.
func (v *testVolume) round(m *replicaMeter, d *rig.Delay, delay time.Duration) testRound {
	v.t.Helper()
	const writes = 25
	d.Set(delay)
	d.Take()
	before := m.Settled()
	v.IO(writes, 1, func(i int) error {
		defer time.Sleep(2 * time.Millisecond)
		return v.Write(int64(i)*8192, 8192)
	})
	after := m.Settled()
	r := testRound{held: d.Take().Mean(), frontend: after.Mean(before, operationtest.FrontendMetric, operationtest.Match{"op": "write"})}
	for i, tested := range v.Replicas {
		request, service := operationtest.Match{"address": v.Addresses[i], "op": "write"}, operationtest.Match{"address": tested.Address, "op": "write"}
		if got := after.Count(operationtest.RequestMetric, request) - before.Count(operationtest.RequestMetric, request); got != writes {
			v.t.Fatalf("%d writes to %s, want %d", got, v.Addresses[i], writes)
		}
		means := replicaMeans{after.Mean(before, operationtest.RequestMetric, request), after.Mean(before, operationtest.ServiceMetric, service)}
		if means.service <= 0 || means.service >= means.request || means.request >= r.frontend {
			v.t.Errorf("replica %d: service %v s, round trip %v s, whole write %v s: one must be within the next", i, means.service, means.request, r.frontend)
		}
		const last = "plumbline_replica_last_ack_total"
		r.replicas = append(r.replicas, means)
		r.last = append(r.last, (after.Value(last, operationtest.Match{"address": v.Addresses[i]})-before.Value(last, operationtest.Match{"address": v.Addresses[i]}))/writes)
	}
	return r
}

// compareWrites writes in turns without and with a delay. It returns by how much each
// replica's means rose, how much more was held back, and how often each replica was last
// with the delay: medians over the turns, which other load on the machine moves least.
func compareWrites(v *testVolume, m *replicaMeter, d *rig.Delay, delay time.Duration) (rise []replicaMeans, held float64, last []float64) {
	v.t.Helper()
	const turns = 9
	n := len(v.Replicas)
	requests, services, lasts := make([][]float64, n), make([][]float64, n), make([][]float64, n)
	var more []float64
	for range turns {
		without, with := v.round(m, d, 0), v.round(m, d, delay)
		more = append(more, with.held-without.held)
		for i := range n {
			change := with.replicas[i].minus(without.replicas[i])
			requests[i], services[i] = append(requests[i], change.request), append(services[i], change.service)
			lasts[i] = append(lasts[i], with.last[i])
		}
	}
	for i := range n {
		rise = append(rise, replicaMeans{collectortest.Median(requests[i]), collectortest.Median(services[i])})
		last = append(last, collectortest.Median(lasts[i]))
		v.t.Logf("replica %d: round trip %+.0f us, service %+.0f us; last to acknowledge %.0f %%", i, rise[i].request*1e6, rise[i].service*1e6, 100*last[i])
	}
	v.t.Logf("held back %+.0f us", collectortest.Median(more)*1e6)
	return rise, collectortest.Median(more), last
}

// newPunctualVolume starts n replicas at real-time priority and raises this test, which holds
// things back, to it, too: other load on the machine then waits for them, not they for it. No CPU
// sleeps meanwhile: what is held back would come back to sleeping ones.
func newPunctualVolume(t testing.TB, n int) *testVolume {
	t.Helper()
	v := newTestVolume(t, 0)
	testkit.Tool(t, "chrt")
	rig.KeepAwake(t)
	if err := rig.ScheduleTest(t, rig.Punctual); err != nil {
		t.Logf("at normal priority, so other load on the machine may spoil attempts: %v", err)
	} else {
		v.Within = rig.Punctually(t)
	}
	for range n {
		v.AddReplica()
	}
	return v
}

func apart(what string, got, want, allowed float64) error {
	if math.Abs(got-want) > allowed {
		return fmt.Errorf("%s changed by %.0f us, want %.0f us within %.0f us", what, got*1e6, want*1e6, allowed*1e6)
	}
	return nil
}

// A delay of 20 ms before one of three replicas is seen as that: in its round trip, not in its
// service time, and not with the others; and this replica is the last to acknowledge.
func TestReplicaBehindSlowNetwork(t *testing.T) {
	const delay, slow = 20 * time.Millisecond, 2 // far more than a busy machine adds to a write
	v := newPunctualVolume(t, 3)
	v.Addresses[slow] = v.Network + ".99:10000"
	d := rig.StartDelayProxy(t, v.Addresses[slow], v.Replicas[slow].Address)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(4)
	tolerance := 0.1 * delay.Seconds()
	collectortest.OnceOf(t, 5, func() error {
		rise, held, last := compareWrites(v, m, d, delay)
		errs := []error{apart("round trip of the delayed replica", rise[slow].request, held, tolerance)}
		if last[slow] <= 0.95 {
			errs = append(errs, fmt.Errorf("the delayed replica was last to acknowledge %.2f of the writes, want more than 0.95", last[slow]))
		}
		for i := range v.Replicas {
			errs = append(errs, apart(fmt.Sprintf("service time of replica %d", i), rise[i].service, 0, tolerance))
			if i != slow {
				errs = append(errs, apart(fmt.Sprintf("round trip of replica %d", i), rise[i].request, 0, tolerance))
			}
		}
		return errors.Join(errs...)
	})
	if r := v.round(m, d, delay); r.replicas[slow].request < delay.Seconds() {
		t.Errorf("mean round trip of %v s through a delay of %v", r.replicas[slow].request, delay)
	}
	m.Read().Clean(t)
}

// A slow disk under one replica is seen as that: its service time rises, its network's share
// of the round trip does not.
func TestReplicaOnSlowDisk(t *testing.T) {
	testkit.NeedRoot(t)
	const delay, slow = 30 * time.Millisecond, 1
	collectortest.OwnMounts(t)
	v := newPunctualVolume(t, 2)
	r := v.Replicas[slow]
	r.Process.Kill()
	r.Dir = filepath.Join(r.Dir, "mounted")
	d := mountSlow(t, filepath.Dir(r.Dir), r.Dir).Writes
	v.StartReplica(r)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(3)
	collectortest.OnceOf(t, 5, func() error {
		rise, held, _ := compareWrites(v, m, d, delay)
		// The kernel's threads between the replica and the disk have no priority: what they
		// add on a busy machine counts as the disk's.
		tolerance := 0.1 * max(held, rise[slow].service)
		errs := []error{
			apart("network share of the round trip to the replica on the slow disk", rise[slow].network(), 0, tolerance),
			apart("round trip of the other replica", rise[0].request, 0, tolerance),
		}
		if rise[slow].service < 0.9*held {
			errs = append(errs, fmt.Errorf("service time rose by %v s only, the disk held back %v s", rise[slow].service, held))
		}
		return errors.Join(errs...)
	})
	if r := v.round(m, d, delay); r.replicas[slow].service < delay.Seconds() {
		t.Errorf("mean service time of %v s on a disk slower by %v", r.replicas[slow].service, delay)
	}
	m.Read().Clean(t)
}

// mountSlow mounts an ext4 on a disk that holds reads and writes back.
func mountSlow(t testing.TB, dir, at string) *rig.SlowDisk {
	t.Helper()
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	disk, err := rig.NewSlowDisk(t, dir, 4*rig.VolumeSize)
	if errors.Is(err, rig.ErrNotAllowed) {
		testkit.Skip(t, err.Error())
	} else if err != nil {
		t.Fatal(err)
	}
	if err := rig.MountExt4(t, disk.Device, at); err != nil {
		t.Fatal(err)
	}
	return disk
}
