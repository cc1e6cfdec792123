package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	oldestRequest  = "plumbline_replica_oldest_request_seconds"
	oldestService  = "plumbline_replica_oldest_service_seconds"
	serviceUnread  = "plumbline_replica_service_unread_bytes"
	oldestFrontend = "plumbline_volume_frontend_oldest_seconds"
	unreadFrontend = "plumbline_volume_frontend_unread_bytes"
	stoppedMetric  = "plumbline_storage_process_stopped_seconds"

	processCPUMetric = "plumbline_storage_process_cpu_seconds_total"
)

// stallsOver reports whether nothing is old, unread or stopped.
func stallsOver(r operationtest.Reading) bool {
	for _, name := range []string{oldestRequest, oldestService, oldestFrontend} {
		if r.Value(name, nil) > 1 {
			return false
		}
	}
	return r.Value(serviceUnread, nil)+r.Value(unreadFrontend, nil)+r.Value(stoppedMetric, nil) == 0
}

func (m *replicaMeter) lost() float64 {
	m.T.Helper()
	return m.Read().Value("plumbline_replica_lost_total", nil)
}

// overWithoutLoss waits for a stall's end; lost is what was lost before it.
func (m *replicaMeter) overWithoutLoss(lost float64) {
	m.T.Helper()
	m.Eventually("the stall is over", stallsOver)
	if got := m.lost(); got != lost {
		m.T.Errorf("%v events lost during the stall", got-lost)
	}
}

// halt stops a process, and returns when none of its threads runs any more.
func halt(t *testing.T, p *rig.Process) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.PID()))
		if err != nil || len(threads) == 0 {
			return fmt.Errorf("threads %v of process %d: %w", threads, p.PID(), err)
		}
		for _, stat := range threads {
			text, err := os.ReadFile(stat)
			if err == nil && !strings.Contains(string(text), ") T ") {
				return fmt.Errorf("a thread still runs: %s", text)
			}
		}
		return nil
	})
}

// resume lets a process go on.
func resume(t *testing.T, p *rig.Process) {
	t.Helper()
	if err := syscall.Kill(p.PID(), syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

// The engine is stalled: its user waits, which no message shows. The volume's metrics report it, for hours if need be,
// and the replicas are not blamed.
func TestReplicaEngineStopped(t *testing.T) {
	v := newTestVolume(t, 3, "--engine-replica-timeout", "30")
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)
	m.Eventually("there is no stall", stallsOver)

	stop := v.background(4)
	halt(t, v.Process)
	at := time.Now()
	// Sent for sure after the stop: nobody reads it.
	late := make(chan error, 1)
	go func() { late <- v.Write(rig.VolumeSize-8192, 8192) }()
	engine := operationtest.Match{"volume": v.Name, "role": "engine", "address": "", "node": "here"}
	r := m.Eventually("the stop of the engine shows", func(r operationtest.Reading) bool {
		return r.Value(oldestFrontend, operationtest.Match{"volume": v.Name}) > 2 && r.Value(unreadFrontend, nil) >= 8192 && r.Value(stoppedMetric, engine) > 1
	})
	t.Logf("after %v: frontend oldest %v s, %v bytes unread, stopped %v s", time.Since(at), r.Value(oldestFrontend, nil), r.Value(unreadFrontend, nil), r.Value(stoppedMetric, engine))
	m.Eventually("the replicas are not blamed", func(r operationtest.Reading) bool {
		return r.Value(oldestRequest, nil)+r.Value(oldestService, nil)+r.Value(serviceUnread, nil) == 0 && r.Value(stoppedMetric, operationtest.Match{"role": "replica"}) == 0
	})
	// Hours later it is still the same.
	const hours = 5 * time.Hour
	lost := m.lost()
	m.ahead.Store(uint64(hours))
	m.Eventually("the stall lasts", func(r operationtest.Reading) bool {
		return r.Value(oldestFrontend, nil) > hours.Seconds() && r.Value(stoppedMetric, engine) > hours.Seconds()
	})
	m.ahead.Store(0)

	resume(t, v.Process)
	stop()
	if err := <-late; err != nil {
		t.Error(err)
	}
	m.overWithoutLoss(lost)
	v.exact(m, 200, v.Addresses...)
	m.Read().Clean(t)
	v.Stop()
	m.Followed(3)
	if r := m.Read(); len(r[oldestFrontend].GetMetric())+len(r[unreadFrontend].GetMetric()) > 0 || r.Value(stoppedMetric, engine) != 0 {
		t.Error("an engine that is gone still has a stall's series")
	}
}

// The agent starts while the engine is stalled, and has never seen a message of it.
func TestReplicaEngineStoppedBefore(t *testing.T) {
	v := newTestVolume(t, 1)
	v.Start()
	if err := v.Write(0, 8192); err != nil {
		t.Fatal(err)
	}
	halt(t, v.Process)
	late := make(chan error, 1)
	go func() { late <- v.Write(0, 8192) }()
	m := startReplicaCollector(t, v)
	m.Eventually("the stop of the engine shows", func(r operationtest.Reading) bool {
		return r.Value(oldestFrontend, nil) > 1 && r.Value(unreadFrontend, nil) >= 8192 && r.Value(stoppedMetric, operationtest.Match{"role": "engine"}) > 1
	})
	resume(t, v.Process)
	if err := <-late; err != nil {
		t.Error(err)
	}
	m.Eventually("the stall is over", stallsOver)
}

// One of three replicas is stalled: it is named, from both sides, and no other is.
func TestReplicaOneStopped(t *testing.T) {
	v := newTestVolume(t, 3, "--engine-replica-timeout", "30")
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)

	slow := v.Replicas[1]
	stop := v.background(4)
	// Of each process by itself, not of the pod that they share on a real node.
	m.Eventually("the CPU time of the engine and of each replica shows", func(r operationtest.Reading) bool {
		shown := r.Value(processCPUMetric, operationtest.Match{"volume": v.Name, "role": "engine", "address": "", "node": "here"}) > 0
		for _, a := range v.Addresses {
			shown = shown && r.Value(processCPUMetric, operationtest.Match{"volume": v.Name, "role": "replica", "address": a}) > 0
		}
		return shown && r.Value("plumbline_storage_process_runqueue_seconds_total", nil) > 0
	})
	halt(t, slow.Process)
	is := operationtest.Match{"address": slow.Address}
	m.Eventually("the stopped replica shows", func(r operationtest.Reading) bool {
		return r.Value(oldestRequest, is) > 2 && r.Value(oldestService, is) > 1 && r.Value(serviceUnread, is) > 0 && r.Value(stoppedMetric, is) > 1
	})
	m.Eventually("the others are not blamed", func(r operationtest.Reading) bool {
		for _, name := range []string{oldestRequest, oldestService, serviceUnread, stoppedMetric} {
			others := r.Value(name, nil) - r.Value(name, is)
			if others > 1 { // a ping may be under way
				return false
			}
		}
		return true
	})
	const hours = 5 * time.Hour
	lost := m.lost()
	m.ahead.Store(uint64(hours))
	m.Eventually("the stall lasts", func(r operationtest.Reading) bool {
		return r.Value(oldestRequest, is) > hours.Seconds() && r.Value(oldestService, is) > hours.Seconds() && r.Value(oldestFrontend, nil) > hours.Seconds()
	})
	m.ahead.Store(0)
	resume(t, slow.Process)
	stop()
	m.overWithoutLoss(lost)
	v.exact(m, 200, v.Addresses...)
	m.Read().Clean(t)
}

// volumeOnSlowDisk starts a volume of two replicas, the second on a disk that can be made to hang.
func volumeOnSlowDisk(t *testing.T, engineTimeout string) (*testVolume, *rig.Replica, *rig.Delay, *replicaMeter) {
	t.Helper()
	v := newTestVolume(t, 2, "--engine-replica-timeout", engineTimeout)
	r := v.Replicas[1]
	r.Process.Kill()
	r.Dir = filepath.Join(r.Dir, "mounted")
	disk := mountSlow(t, filepath.Dir(r.Dir), r.Dir).Writes
	v.StartReplica(r)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(3)
	v.exact(m, 100, v.Addresses...)
	return v, r, disk, m
}

// The disk under one of two replicas hangs: its service shows it, for hours if need be.
func TestReplicaDiskHangs(t *testing.T) {
	testkit.NeedRoot(t)
	collectortest.OwnMounts(t)
	v, r, disk, m := volumeOnSlowDisk(t, "30")

	t.Cleanup(disk.Release) // before anything that waits for the replica's end
	disk.Hang()
	stop := v.background(2)
	is := operationtest.Match{"address": r.Address}
	for range 100 {
		m.Read() // none waits for the disk
	}
	m.Eventually("the hung disk shows", func(r operationtest.Reading) bool {
		return r.Value(oldestService, is) > 2 && r.Value(oldestRequest, is) > 2
	})
	const hours = 5 * time.Hour
	lost := m.lost()
	m.ahead.Store(uint64(hours))
	m.Eventually("the stall lasts", func(r operationtest.Reading) bool { return r.Value(oldestService, is) > hours.Seconds() })
	m.Eventually("the other replica is not blamed", func(r operationtest.Reading) bool { // a ping may be under way
		return r.Value(oldestService, operationtest.Match{"address": v.Addresses[0]}) <= 1
	})
	m.ahead.Store(0)
	disk.Release()
	stop()
	m.overWithoutLoss(lost)
	v.exact(m, 100, v.Addresses...)
	m.Read().Clean(t)
}

// samples takes n samples at once, which are a second apart otherwise.
func (m *replicaMeter) samples(n int) {
	m.T.Helper()
	for range n {
		if err := m.collector.wires[0].sample(); err != nil {
			m.T.Fatal(err)
		}
	}
}

// unseen does something that the program does not see, as when another tracer comes or goes.
func (m *replicaMeter) unseen(program string, do func()) {
	m.T.Helper()
	k := m.collector.wires[0].kernel
	k.mu.Lock()
	err := k.links[program].Close()
	delete(k.links, program)
	k.mu.Unlock()
	if err != nil {
		m.T.Fatal(err)
	}
	do()
	if err := k.listen(forLocal); err != nil {
		m.T.Fatal(err)
	}
}

// An answer that went by unseen is distinguished, on TCP by the kernel's own count of bytes, from one that is not there
// yet, however long that takes.
func TestReplicaAnswerUnseen(t *testing.T) {
	testkit.NeedBPF(t)
	l, port := dataListener(t)
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Replica, Volume: "unseen", Host: "127.0.0.1", Port: port - 1})
	write := func(id uint32) []byte {
		return encodeMessage(dataconn.MagicLonghorn, id, 1, uint64(id)<<12, 512, make([]byte, 512))
	}
	answer := func(id uint32) []byte {
		return encodeMessage(dataconn.MagicLonghorn, id, 2, uint64(id)<<12, 512, nil)
	}
	exchange := func(client, server net.Conn, id uint32) {
		send(t, client, write(id))
		receive(t, server, write(id))
		send(t, server, answer(id))
		receive(t, client, answer(id))
	}
	inflight := func() float64 { return m.Read().Value("plumbline_replica_services_in_flight", nil) }
	client, server := pair(t, l)
	hung, hungServer := pair(t, l)
	exchange(client, server, 1)
	exchange(hung, hungServer, 1)
	m.samples(2)
	// One operation on each connection; on the first the answer goes by unseen.
	send(t, client, write(2))
	receive(t, server, write(2))
	send(t, hung, write(2))
	receive(t, hungServer, write(2))
	m.unseen(map[platform.AttachMode]string{
		platform.Tracepoints: bpf.DataconnProgReplicaSent,
		platform.Functions:   bpf.DataconnProgReplicaInetSent,
	}[collectortest.Platform(t).AttachMode], func() {
		send(t, server, answer(2))
		receive(t, client, answer(2))
	})
	if got := inflight(); got != 2 {
		t.Fatalf("%v operations under way, want 2", got)
	}
	// The other end takes its time to acknowledge the bytes that are missing.
	f := m.collector.wires[0]
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		m.samples(1)
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, w := range f.sockets {
			if w.missedSince != 0 {
				return nil
			}
		}
		return errors.New("no bytes are missing")
	})
	m.ahead.Store(uint64(missedFor + time.Second))
	m.samples(missedSamples + 2)
	// Later answers on the same connection alone prove nothing: an operation may hang alone.
	exchange(hung, hungServer, 3)
	m.ahead.Store(uint64(5 * time.Hour))
	m.samples(missedSamples + 2)
	r := m.Read()
	if got, lost := inflight(), r.Value("plumbline_replica_lost_total", operationtest.Match{"reason": "resync"}); got != 1 || lost != 1 {
		t.Errorf("%v operations under way and %v answered unseen, want one of each", got, lost)
	}
	if got := r.Value(oldestService, nil); got < (5 * time.Hour).Seconds() {
		t.Errorf("the operation that hangs is %v s old, want five hours", got)
	}
	m.ahead.Store(0)
	send(t, hungServer, answer(2))
	receive(t, hung, answer(2))
	exchange(client, server, 3)
	r = m.Read()
	if got := r.Count(operationtest.ServiceMetric, nil); got != 5 {
		t.Errorf("%d operations counted, want 5", got)
	}
	if got := inflight() + r.Value("plumbline_replica_unmatched_total", nil) + r.Value("plumbline_replica_resyncs_total", nil); got != 0 {
		t.Errorf("%v operations under way, answers without a request and streams out of step", got)
	}
}

// What distinguishes bytes that went by unseen from a call that is under way.
func TestReplicaMissingBytes(t *testing.T) {
	const second = uint64(time.Second)
	type step struct {
		at              uint64 // seconds
		written, unsent uint32
		moved           uint32
	}
	every := func(from, to uint64, s step) (steps []step) {
		for s.at = from; s.at <= to; s.at++ {
			steps = append(steps, s)
		}
		return steps
	}
	for _, c := range []struct {
		name  string
		steps [][]step
		until uint64 // seconds; 0 for nothing missed
	}{
		{"nothing", [][]step{every(1, 200, step{written: 5000, moved: 1000})}, 0},
		{"an answer", [][]step{every(1, 5, step{written: 5000, moved: 1000}), every(6, 200, step{written: 5100, moved: 1000})}, 6},
		{"an answer, and more after it", [][]step{every(1, 5, step{written: 5000, moved: 1000}), every(6, 50, step{written: 5100, moved: 1000}), every(51, 200, step{written: 7100, moved: 3000})}, 6},
		{"across the counters' end", [][]step{every(1, 5, step{written: 0xfffffff0, moved: 0x10}), every(6, 200, step{written: 0x30, moved: 0x10})}, 6},
		{"not for long", [][]step{every(1, 5, step{written: 5000, moved: 1000}), every(6, 90, step{written: 5100, moved: 1000}), every(91, 200, step{written: 5100, moved: 1100})}, 0},
		{"in few samples", [][]step{{{1, 5000, 0, 1000}, {2, 5100, 0, 1000}, {100, 5100, 0, 1000}, {200, 5100, 0, 1000}}}, 0},
		{"a write that waits for hours", [][]step{every(1, 5, step{written: 5000, moved: 1000}), every(6, 20000, step{written: 905000, unsent: 800000, moved: 1000}), every(20001, 20200, step{written: 1005000, moved: 1001000})}, 0},
		{"first met within a call", [][]step{every(1, 1, step{written: 5100, moved: 1000}), every(2, 200, step{written: 5100, moved: 1100})}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &watchedSocket{tcp: true, view: operation.ViewService}
			connection := &bpf.Connection{Id: 3}
			for _, steps := range c.steps {
				for _, s := range steps {
					connection.Tx.Moved = s.moved
					w.sample(&bpf.SocketState{Written: s.written, Unsent: s.unsent}, connection, s.at*second, s.at*second, false)
				}
			}
			if w.missedUntil != c.until*second {
				t.Errorf("bytes are missing from %v s on, want %v s", float64(w.missedUntil)/float64(second), c.until)
			}
		})
	}
}

// The disk hangs for longer than the engine's timeout: it goes on without the replica, but
// keeps the connection. The requests stay with the replica and get older, until it answers.
func TestReplicaDiskHangsForGood(t *testing.T) {
	testkit.NeedRoot(t)
	collectortest.OwnMounts(t)
	v, r, disk, m := volumeOnSlowDisk(t, "8")
	is, other := operationtest.Match{"address": r.Address}, operationtest.Match{"address": v.Addresses[0], "op": "write"}
	t.Cleanup(disk.Release)
	disk.Hang()
	stop := v.background(2)
	before := m.Eventually("the hung disk shows", func(r operationtest.Reading) bool { return r.Value(oldestService, is) > 2 })
	m.Eventually("the volume goes on without the replica", func(r operationtest.Reading) bool {
		return r.Count(operationtest.RequestMetric, other) > before.Count(operationtest.RequestMetric, other)+100 && r.Value(oldestFrontend, nil) < 1 &&
			r.Value(oldestService, is) > before.Value(oldestService, is)+2
	})
	stop()
	disk.Release()
	m.Eventually("the stall is over", stallsOver)
	v.exact(m, 100, v.Addresses[0])
	m.Read().Clean(t)
}

// A replica goes away while its engine does not read: what was under way to it is over.
func TestReplicaGoneUnread(t *testing.T) {
	testkit.NeedBPF(t)
	l, _ := dataListener(t)
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "gone", UnseenFrontend: true})
	client, server := pair(t, l)
	request := encodeMessage(dataconn.MagicLonghorn, 1, 1, 0, 512, make([]byte, 512))
	send(t, client, request)
	receive(t, server, request)
	if got := m.Read().Value("plumbline_replica_requests_in_flight", nil); got != 1 {
		t.Fatalf("%v requests under way, want 1", got)
	}
	_ = server.Close()
	m.Eventually("the request is over", func(r operationtest.Reading) bool {
		return r.Value("plumbline_replica_request_unanswered_total", nil) == 1 && r.Value("plumbline_replica_requests_in_flight", nil) == 0
	})
}

// hangingNode is a file system whose every answer waits until release is closed.
type hangingNode struct {
	fs.Inode
	release chan struct{}
}

func (n *hangingNode) Getattr(context.Context, fs.FileHandle, *fuse.AttrOut) syscall.Errno {
	<-n.release
	return fs.OK
}

func (n *hangingNode) Lookup(context.Context, string, *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	<-n.release
	return nil, syscall.ENOENT
}

// The file system of a replica's directory answers nobody: every scrape goes on, and the other
// volumes' counts stay exact.
func TestReplicaDirectoryHangs(t *testing.T) {
	testkit.NeedRoot(t)
	collectortest.OwnMounts(t)
	v := newTestVolume(t, 1)
	at := filepath.Join(v.Dir, "hangs")
	if err := os.Mkdir(at, 0o700); err != nil {
		t.Fatal(err)
	}
	node := &hangingNode{release: make(chan struct{})}
	server, err := fs.Mount(at, node, &fs.Options{MountOptions: fuse.MountOptions{DirectMountStrict: true, AllowOther: true}})
	if err != nil {
		testkit.Skip(t, err.Error())
	}
	t.Cleanup(func() { rig.Eventually(t, rig.DefaultTimeout, server.Unmount) })
	var once sync.Once
	release := func() { once.Do(func() { close(node.release) }) }

	program := filepath.Join(v.Dir, "longhorn-engine")
	copyFile(t, testkit.Tool(t, "sh"), program)
	name := v.Name + "-hangs"
	m := startReplicaCollector(t, v, func(w *replicaWire) {
		w.recognise = func(args []string, hostname func() string) (*replicaProcess, error) {
			p, err := dataconnProcess(args, hostname)
			if p == nil || p.Volume != v.Name && p.Volume != name {
				return nil, nil
			}
			return p, err
		}
	})
	t.Cleanup(release)
	hung := osexec.Command(program, "-c", "read x", "--volume-name", name, "replica", "--listen", v.Network+".77:10000", at+"/data")
	held, err := hung.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := hung.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = held.Close(); _ = hung.Wait() })
	v.Start()
	m.Followed(3)
	f := m.collector.wires[0]
	hanging := func(want int) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if n := f.disks.Hanging(); n != want {
				return fmt.Errorf("%d calls on directories hang, want %d", n, want)
			}
			return nil
		})
	}
	hanging(1)
	for range 100 {
		if got := m.Read().Value("plumbline_replica_info", operationtest.Match{"volume": name, "device": ""}); got != 1 {
			t.Fatal("no information about the replica whose directory hangs")
		}
	}
	v.exact(m, 200, v.Addresses[0])
	m.Read().Clean(t)
	hanging(1)
	release()
	hanging(0)
}

// A process that is frozen with its cgroup, as by a container runtime's pause, is stalled like one that is stopped.
func TestReplicaFrozen(t *testing.T) {
	testkit.NeedRoot(t)
	for _, c := range []struct{ version, options, file, freeze, thaw string }{
		{"cgroup2", "", "cgroup.freeze", "1", "0"},
		{"cgroup", "freezer", "freezer.state", "FROZEN", "THAWED"},
	} {
		t.Run(c.version, func(t *testing.T) {
			collectortest.OwnMounts(t)
			at := t.TempDir()
			if err := unix.Mount("none", at, c.version, 0, c.options); err != nil {
				testkit.Skip(t, c.version+" cannot be mounted: "+err.Error())
			}
			t.Cleanup(func() { _ = unix.Unmount(at, 0) })
			v := newTestVolume(t, 1)
			m := startReplicaCollector(t, v)
			v.Start()
			m.Followed(2)
			group := filepath.Join(at, v.Name)
			if err := os.Mkdir(group, 0o755); err != nil {
				t.Fatal(err)
			}
			set := func(file, value string) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(group, file), []byte(value), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			frozen := v.Replicas[0]
			t.Cleanup(func() {
				set(c.file, c.thaw)
				frozen.Process.Kill()
				rig.Eventually(t, rig.DefaultTimeout, func() error { return os.Remove(group) })
			})
			set("cgroup.procs", fmt.Sprint(frozen.Process.PID()))
			set(c.file, c.freeze)
			is := operationtest.Match{"address": frozen.Address, "role": "replica", "backend": "longhorn-v1"}
			m.Eventually("the frozen replica shows", func(r operationtest.Reading) bool { return r.Value(stoppedMetric, is) > 1 })
			if got := m.Read().Value(stoppedMetric, operationtest.Match{"role": "engine"}); got != 0 {
				t.Errorf("the engine is stopped for %v s", got)
			}
			set(c.file, c.thaw)
			m.Eventually("it runs again", func(r operationtest.Reading) bool { return r.Value(stoppedMetric, nil) == 0 })
		})
	}
}
