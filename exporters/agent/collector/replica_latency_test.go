package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// testDelay is a time to hold something back, and how long it was really held.
type testDelay struct {
	delay, held, times atomic.Int64
}

// hold waits until the delay has passed since arrival: in the kernel, because Go's own
// timers are late by up to a millisecond.
func (d *testDelay) hold(arrival time.Time) {
	for {
		left := time.Until(arrival.Add(time.Duration(d.delay.Load())))
		if left <= 0 {
			break
		}
		pause := unix.NsecToTimespec(left.Nanoseconds())
		_ = unix.Nanosleep(&pause, nil) // a signal ends it early: look again
	}
	d.held.Add(int64(time.Since(arrival)))
	d.times.Add(1)
}

// mean is how long each was held since the last call, in seconds.
func (d *testDelay) mean() float64 {
	return float64(d.held.Swap(0)) / float64(d.times.Swap(0)) / 1e9
}

// startDelayProxy puts a proxy at address before a replica: its control port as it is, its
// data port with what goes to the replica held back.
func startDelayProxy(t testing.TB, address, replica string) *testDelay {
	t.Helper()
	d := &testDelay{}
	var open sync.WaitGroup
	var mu sync.Mutex
	closed := false
	var closers []io.Closer
	keep := func(c io.Closer) {
		mu.Lock()
		defer mu.Unlock()
		closers = append(closers, c)
		if closed {
			_ = c.Close()
		}
	}
	serve := func(from, to string, delayed bool) {
		l, err := net.Listen("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		keep(l)
		open.Go(func() {
			for {
				near, err := l.Accept()
				if err != nil {
					return
				}
				far, err := net.Dial("tcp", to)
				if err != nil {
					_ = near.Close()
					continue
				}
				keep(near)
				keep(far)
				open.Go(func() { pump(far, near, d, delayed) })
				open.Go(func() { pump(near, far, d, false) })
			}
		})
	}
	next := func(a string) string { return strings.TrimSuffix(a, "0") + "1" }
	serve(address, replica, false)
	serve(next(address), next(replica), true)
	t.Cleanup(func() {
		mu.Lock()
		closed = true
		for _, c := range closers {
			_ = c.Close()
		}
		mu.Unlock()
		open.Wait()
	})
	return d
}

// pump copies one direction. The delay is a line, not a gate: what comes while something is
// held back waits from its own arrival on.
func pump(to, from net.Conn, d *testDelay, delayed bool) {
	type chunk struct {
		data    []byte
		arrival time.Time
	}
	line := make(chan chunk, 1024)
	go func() {
		defer close(line)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			if err != nil {
				return
			}
			line <- chunk{b[:n], time.Now()}
		}
	}()
	for c := range line {
		if delayed {
			d.hold(c.arrival)
		}
		if _, err := to.Write(c.data); err != nil {
			_ = from.Close() // ends the reader
		}
	}
	_ = to.Close()
}

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
func (v *testVolume) round(m *replicaMeter, d *testDelay, delay time.Duration) testRound {
	v.t.Helper()
	const writes = 100
	d.delay.Store(int64(delay))
	d.mean()
	before := m.settled()
	v.io(writes, 1, func(i int) error {
		defer time.Sleep(2 * time.Millisecond)
		return v.write(int64(i)*8192, 8192)
	})
	after := m.settled()
	r := testRound{held: d.mean(), frontend: after.mean(before, frontendMetric, match{"op": "write"})}
	for i, tested := range v.replicas {
		request, service := match{"replica": v.addresses[i], "op": "write"}, match{"replica": tested.address, "op": "write"}
		if got := after.count(requestMetric, request) - before.count(requestMetric, request); got != writes {
			v.t.Fatalf("%d writes to %s, want %d", got, v.addresses[i], writes)
		}
		means := replicaMeans{after.mean(before, requestMetric, request), after.mean(before, serviceMetric, service)}
		if means.service <= 0 || means.service >= means.request || means.request >= r.frontend {
			v.t.Errorf("replica %d: service %v s, round trip %v s, whole write %v s: one must be within the next", i, means.service, means.request, r.frontend)
		}
		const last = "plumbline_replica_last_ack_total"
		r.replicas = append(r.replicas, means)
		r.last = append(r.last, (after.value(last, match{"replica": v.addresses[i]})-before.value(last, match{"replica": v.addresses[i]}))/writes)
	}
	return r
}

// compareWrites writes in turns without and with a delay. It returns by how much each
// replica's means rose, how much more was held back, and how often each replica was last
// with the delay: medians over the turns, which other load on the machine moves least.
func compareWrites(v *testVolume, m *replicaMeter, d *testDelay, delay time.Duration) (rise []replicaMeans, held float64, last []float64) {
	v.t.Helper()
	const turns = 9
	n := len(v.replicas)
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
		rise = append(rise, replicaMeans{median(requests[i]), median(services[i])})
		last = append(last, median(lasts[i]))
		v.t.Logf("replica %d: round trip %+.0f us, service %+.0f us; last to acknowledge %.0f %%", i, rise[i].request*1e6, rise[i].service*1e6, 100*last[i])
	}
	v.t.Logf("held back %+.0f us", median(more)*1e6)
	return rise, median(more), last
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// newPunctualVolume starts n replicas at real-time priority and raises this test, which holds
// things back, to it, too: other load on the machine then waits for them, not they for it.
func newPunctualVolume(t testing.TB, n int) *testVolume {
	t.Helper()
	v := newTestVolume(t, 0)
	const policy, priority = 2, 1 // SCHED_RR, the lowest
	if err := schedule(policy, priority); err != nil {
		t.Logf("at normal priority, so other load on the machine may spoil attempts: %v", err)
	} else {
		v.within = []string{testkit.Tool(t, "chrt"), "--rr", fmt.Sprint(priority)}
		t.Cleanup(func() {
			if err := schedule(0, 0); err != nil {
				t.Error(err)
			}
		})
	}
	for range n {
		v.addReplica()
	}
	return v
}

// schedule sets how this process's threads, and those they will start, are scheduled.
func schedule(policy, priority uint32) error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		if err != nil {
			return err
		}
		attributes := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: policy, Priority: priority}
		if err := unix.SchedSetAttr(id, &attributes, 0); err != nil && !errors.Is(err, unix.ESRCH) {
			return err
		}
	}
	return nil
}

// onceOf tries what other load on the machine can spoil, but never help.
func onceOf(t testing.TB, attempts int, f func() error) {
	t.Helper()
	for attempt := 1; ; attempt++ {
		err := f()
		if err == nil {
			return
		}
		if attempt == attempts {
			t.Fatal(err)
		}
		t.Logf("attempt %d: %v", attempt, err)
	}
}

func apart(what string, got, want, allowed float64) error {
	if math.Abs(got-want) > allowed {
		return fmt.Errorf("%s changed by %.0f us, want %.0f us within %.0f us", what, got*1e6, want*1e6, allowed*1e6)
	}
	return nil
}

// A delay of 2 ms before one of three replicas is seen as that: in its round trip, not in its
// service time, and not with the others; and this replica is the last to acknowledge.
func TestReplicaBehindSlowNetwork(t *testing.T) {
	const delay, slow = 2 * time.Millisecond, 2
	v := newPunctualVolume(t, 3)
	v.addresses[slow] = v.network + ".99:10000"
	d := startDelayProxy(t, v.addresses[slow], v.replicas[slow].address)
	m := startReplicaCollector(t, v)
	v.start()
	m.followed(4)
	tolerance := 0.1 * delay.Seconds()
	onceOf(t, 5, func() error {
		rise, held, last := compareWrites(v, m, d, delay)
		errs := []error{apart("round trip of the delayed replica", rise[slow].request, held, tolerance)}
		if last[slow] <= 0.95 {
			errs = append(errs, fmt.Errorf("the delayed replica was last to acknowledge %.2f of the writes, want more than 0.95", last[slow]))
		}
		for i := range v.replicas {
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
	m.read().clean(t)
}

// A slow disk under one replica is seen as that: its service time rises, its network's share
// of the round trip does not.
func TestReplicaOnSlowDisk(t *testing.T) {
	testkit.NeedRoot(t)
	const delay, slow = 3 * time.Millisecond, 1
	ownMounts(t)
	v := newPunctualVolume(t, 2)
	r := v.replicas[slow]
	r.process.kill()
	d := &testDelay{}
	r.dir = filepath.Join(r.dir, "mounted")
	mountSlow(t, filepath.Dir(r.dir), r.dir, d)
	v.startReplica(r)
	m := startReplicaCollector(t, v)
	v.start()
	m.followed(3)
	onceOf(t, 5, func() error {
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
	m.read().clean(t)
}

// ownMounts gives this test, and the processes it starts, a mount namespace: one that another
// program makes meanwhile would keep copies of the test's mounts, and so its disk, busy.
func ownMounts(t testing.TB) {
	t.Helper()
	runtime.LockOSThread() // and never unlock: the thread, and with it the namespace, ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		testkit.Skip(t, "cannot make a mount namespace: "+err.Error())
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
}

// mountSlow mounts an ext4 whose disk is a loop device on a file of a FUSE file system that
// holds writes back: the engine asks its file system for things that FUSE does not have.
func mountSlow(t testing.TB, dir, at string, d *testDelay) {
	t.Helper()
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := osexec.Command(testkit.Tool(t, name), args...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	// What a failed test leaves behind must not keep the machine: detach by force.
	undo := func(name string, args ...string) {
		t.Cleanup(func() {
			if out, err := osexec.Command(testkit.Tool(t, name), args...).CombinedOutput(); err != nil {
				t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
			}
		})
	}
	backing, fused := filepath.Join(dir, "backing"), filepath.Join(dir, "fuse")
	for _, path := range []string{backing, fused, at} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(backing, "disk"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(backing, "disk"), 4*testVolumeSize); err != nil {
		t.Fatal(err)
	}
	root := &fs.LoopbackRoot{Path: backing}
	root.NewNode = func(r *fs.LoopbackRoot, _ *fs.Inode, _ string, _ *syscall.Stat_t) fs.InodeEmbedder {
		return &slowDiskNode{LoopbackNode: fs.LoopbackNode{RootData: r}, delay: d}
	}
	server, err := fs.Mount(fused, root.NewNode(root, nil, "", nil), &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true}})
	if err != nil {
		testkit.Skip(t, "cannot mount a FUSE file system: "+err.Error())
	}
	t.Cleanup(func() {
		// The kernel lets go of the loop device's file only some time after losetup.
		testkit.Eventually(t, time.Minute, server.Unmount)
	})
	disk := run("losetup", "--find", "--show", "--direct-io=on", filepath.Join(fused, "disk"))
	undo("losetup", "--detach", disk)
	run("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", disk)
	run("mount", disk, at)
	undo("umount", at)
	t.Cleanup(func() { d.delay.Store(0) })
}

type slowDiskNode struct {
	fs.LoopbackNode
	delay *testDelay
}

func (n *slowDiskNode) Open(ctx context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	// The loop device asks for direct I/O, which the backing file need not promise.
	h, _, errno := n.LoopbackNode.Open(ctx, flags&^syscall.O_DIRECT)
	if f, ok := h.(*fs.LoopbackFile); ok {
		h = &slowDiskFile{f, n.delay}
	}
	return h, fuse.FOPEN_DIRECT_IO, errno
}

type slowDiskFile struct {
	*fs.LoopbackFile
	delay *testDelay
}

// PassthroughFd keeps the kernel from going past Write.
func (f *slowDiskFile) PassthroughFd() (int, bool) { return 0, false }

func (f *slowDiskFile) Write(ctx context.Context, data []byte, off int64) (uint32, syscall.Errno) {
	f.delay.hold(time.Now())
	return f.LoopbackFile.Write(ctx, data, off)
}
