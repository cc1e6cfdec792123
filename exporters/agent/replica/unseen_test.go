package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/dataconn"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/operation/operationtest"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/tests/testkit"
)

// unseenScene is a made-up volume with data locality strict-local as the collector knows it, with
// one operation in each view that is 80 s old, and one sample every second from then on.
type unseenScene struct {
	f           *replicaFollower
	engine, own *followedProcess
	inflight    map[bpf.OperationKey]bpf.Operation
	connections map[uint64]bpf.Connection
	now         uint64
	// hung is what a sample finds of the own replica's threads.
	hung bool
}

// The sockets of the scene; connections have the same numbers. The engine's TCP one is to a replica elsewhere.
const (
	sceneFrontend = 1 + iota
	sceneRequest
	sceneService
	sceneTCP
)

const sceneStart = 1000 * uint64(time.Second)

func newUnseenScene() *unseenScene {
	s := &unseenScene{
		engine:      &followedProcess{replicaProcess: replicaProcess{Role: bpf.Engine, Unix: true, Volume: "v"}, pid: 1, slot: 1},
		own:         &followedProcess{replicaProcess: replicaProcess{Role: bpf.Replica, Unix: true, Volume: "v"}, pid: 2, slot: 2},
		inflight:    map[bpf.OperationKey]bpf.Operation{},
		connections: map[uint64]bpf.Connection{},
		now:         sceneStart + 80*uint64(time.Second),
	}
	stranger := &followedProcess{replicaProcess: replicaProcess{Role: bpf.Replica, Unix: true, Volume: "other"}, pid: 3, slot: 3}
	stranger.threads.hung, stranger.stopped.since = true, 1
	s.f = &replicaFollower{
		byPID:   map[int]*followedProcess{1: s.engine, 2: s.own, 3: stranger},
		bySlot:  map[uint32]*followedProcess{1: s.engine, 2: s.own, 3: stranger},
		sockets: map[uint64]*watchedSocket{},
	}
	for inode, view := range map[uint64]operation.View{sceneFrontend: operation.ViewFrontend, sceneRequest: operation.ViewRequest, sceneService: operation.ViewService, sceneTCP: operation.ViewRequest} {
		slot := s.engine.slot
		if view == operation.ViewService {
			slot = s.own.slot
		}
		s.f.sockets[inode] = &watchedSocket{slot: slot, view: view, connection: uint32(inode), tcp: inode == sceneTCP}
		s.connections[inode] = bpf.Connection{Slot: slot, Id: uint32(inode), View: uint8(view), AnsweredRead: sceneStart + 1}
	}
	return s
}

func (s *unseenScene) begin(on uint64, id uint64, op string, start uint64) {
	c := s.connections[on]
	for number, name := range operation.Ops {
		if name == op {
			s.inflight[bpf.OperationKey{Connection: c.Id, Id: id}] = bpf.Operation{Start: start, Slot: c.Slot, View: c.View, Op: uint8(number)}
		}
	}
}

func (s *unseenScene) unseen(on uint64) bool {
	key := bpf.OperationKey{Connection: uint32(on), Id: 1}
	o := s.inflight[key]
	return s.f.answeredUnseen(key, &o, s.f.sockets[on])
}

// What distinguishes an answer that went by unseen on a unix socket from one that is not there yet.
func TestAnsweredUnseen(t *testing.T) {
	const second = uint64(time.Second)
	// at 80 s the scene begins, at 90 s an overtaken read is old, and 90 s later no more doubt is left.
	type event struct {
		at uint64 // seconds after the operation's start
		do func(*unseenScene)
	}
	stop := func(n func(*unseenScene) *followedProcess, since uint64) func(*unseenScene) {
		return func(s *unseenScene) { n(s).stopped.since = since }
	}
	engine := func(s *unseenScene) *followedProcess { return s.engine }
	own := func(s *unseenScene) *followedProcess { return s.own }
	hang := func(hung bool) func(*unseenScene) {
		return func(s *unseenScene) { s.hung = hung }
	}
	ahead := func(by time.Duration) func(*unseenScene) {
		return func(s *unseenScene) { s.now += uint64(by) }
	}
	back := func(by time.Duration) func(*unseenScene) {
		return func(s *unseenScene) { s.now -= uint64(by) }
	}
	request := func(on uint64, start uint64) func(*unseenScene) {
		return func(s *unseenScene) { s.begin(on, 7, "read", sceneStart+start*second) }
	}
	answer := func(on uint64) func(*unseenScene) {
		return func(s *unseenScene) { delete(s.inflight, bpf.OperationKey{Connection: uint32(on), Id: 7}) }
	}
	each := func(from, to, step uint64, do func(at uint64) func(*unseenScene)) (events []event) {
		for at := from; at < to; at += step {
			events = append(events, event{at, do(at)})
		}
		return events
	}
	for _, c := range []struct {
		name   string
		on     uint64
		op     string
		events []event
		over   uint64 // seconds after the operation's start, if every sample was counted; 0 for never
	}{
		{"frontend", sceneFrontend, "read", nil, 180},
		{"service", sceneService, "read", nil, 180},
		{"request", sceneRequest, "read", nil, 180},
		{"not overtaken", sceneFrontend, "read", []event{{80, func(s *unseenScene) {
			s.connections[sceneFrontend] = bpf.Connection{Id: sceneFrontend, AnsweredRead: sceneStart}
		}}}, 0},
		{"overtaken by another kind", sceneFrontend, "write", nil, 0},
		{"overtaken by a write", sceneFrontend, "unmap", []event{{200, func(s *unseenScene) {
			s.connections[sceneFrontend] = bpf.Connection{Id: sceneFrontend, AnsweredWrite: sceneStart + 1}
		}}}, 290},
		{"another connection by now", sceneFrontend, "read", []event{{100, func(s *unseenScene) {
			s.connections[sceneFrontend] = bpf.Connection{Id: 99, AnsweredRead: sceneStart + 1}
		}}}, 0},
		{"another operation of this number", sceneFrontend, "read", []event{{150, func(s *unseenScene) {
			s.begin(sceneFrontend, 1, "read", sceneStart+40*second)
			s.connections[sceneFrontend] = bpf.Connection{Id: sceneFrontend, AnsweredRead: sceneStart + 41*second}
		}}}, 240},
		{"hours pass in one sample", sceneFrontend, "read", []event{{80, ahead(5 * time.Hour)}}, 80 + 90},
		{"hours pass in one sample of a doubt", sceneFrontend, "read", []event{{170, ahead(5 * time.Hour)}}, 180 - 8},
		{"the clock goes back", sceneFrontend, "read", []event{{80, ahead(5 * time.Hour)}, {140, back(5 * time.Hour)}}, 80 + 90 + 1},
		{"the engine is stopped", sceneFrontend, "read", []event{{80, stop(engine, 1)}}, 0},
		{"the engine was stopped", sceneFrontend, "read", []event{{80, stop(engine, 1)}, {300, stop(engine, 0)}}, 299 + 90},
		{"the engine is stopped for a while", sceneFrontend, "read", []event{{178, stop(engine, 1)}, {179, stop(engine, 0)}}, 178 + 90},
		{"the replica is stopped", sceneService, "read", []event{{80, stop(own, 1)}}, 0},
		{"the replica of a request is stopped", sceneRequest, "read", []event{{80, stop(own, 1)}}, 0},
		{"the replica's disk hangs", sceneService, "read", []event{{100, hang(true)}}, 0},
		{"the replica's disk hung", sceneService, "read", []event{{80, hang(true)}, {300, hang(false)}}, 299 + 90},
		{"the disk behind a request hangs", sceneRequest, "read", []event{{80, hang(true)}}, 0},
		{"a service behind a request stalls", sceneRequest, "read", []event{{80, request(sceneService, 0)}, {300, answer(sceneService)}}, 299 + 90},
		{"an answer is not read", sceneRequest, "read", []event{{80, func(s *unseenScene) {
			w := s.f.sockets[sceneRequest]
			w.unread, w.age = 100, 1
		}}}, 0},
		{"a request to a replica stalls", sceneFrontend, "read", []event{{80, request(sceneTCP, 0)}}, 0},
		{"an older request to a replica stalls", sceneFrontend, "read", []event{{80, func(s *unseenScene) { s.begin(sceneTCP, 7, "write", sceneStart-second) }}}, 0},
		{"a later request to a replica stalls", sceneFrontend, "read", []event{{130, request(sceneTCP, 130)}}, 0},
		{"a request to a replica stalled", sceneFrontend, "read", []event{{80, request(sceneTCP, 0)}, {5000, answer(sceneTCP)}}, 4999 + 90},
		{"requests to replicas go on", sceneFrontend, "read", each(80, 400, 5, func(at uint64) func(*unseenScene) { return request(sceneTCP, at) }), 180},
		{"one request after the other stalls", sceneFrontend, "read", each(80, 9000, 12, func(at uint64) func(*unseenScene) { return request(sceneTCP, at) }), 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newUnseenScene()
			s.begin(c.on, 1, c.op, sceneStart)
			var over uint64
			for at := uint64(80); at < 9000 && over == 0; at++ {
				for _, e := range c.events {
					if e.at == at {
						e.do(s)
					}
				}
				s.own.threads.hung = s.hung && s.own.threads.wanted
				s.f.doubtAnswers(s.inflight, s.connections, s.now)
				if s.unseen(c.on) {
					over = at
				}
				s.now += second
			}
			if over != c.over {
				t.Errorf("over after %d s, want %d s", over, c.over)
			}
			if want := c.on != sceneFrontend; s.own.threads.wanted != want {
				t.Errorf("the replica's threads are wanted: %v, want %v", s.own.threads.wanted, want)
			}
		})
	}
}

// On TCP the kernel's own count of bytes decides, whatever was overtaken.
func TestAnsweredUnseenTCP(t *testing.T) {
	s := newUnseenScene()
	s.begin(sceneTCP, 1, "read", sceneStart)
	for range 2000 {
		s.f.doubtAnswers(s.inflight, s.connections, s.now)
		s.now += uint64(time.Second)
	}
	if s.unseen(sceneTCP) {
		t.Error("overtaken is taken for answered")
	}
	s.f.sockets[sceneTCP].missedUntil = sceneStart + 1
	if !s.unseen(sceneTCP) {
		t.Error("what was under way when bytes went by is not taken for answered")
	}
}

// A thread that is asleep for its disk from one sample to the next, and what is not known, hangs.
func TestReplicaReadThreads(t *testing.T) {
	status := func(state string, sleeps int) string {
		return fmt.Sprintf("Name:\tlonghorn State: D\nState:\t%s\nvoluntary_ctxt_switches:\t%d\nnonvoluntary_ctxt_switches:\t9\n", state, sleeps)
	}
	const runs, sleeps, disk = "R (running)", "S (sleeping)", "D (disk sleep)"
	before := map[string]uint64{"1": 5, "2": 7}
	for _, c := range []struct {
		name    string
		threads map[string]string
		hung    bool
		fails   bool
	}{
		{"none waits", map[string]string{"1": status(runs, 5), "2": status(sleeps, 7)}, false, false},
		{"one waits since", map[string]string{"1": status(runs, 5), "2": status(disk, 7)}, true, false},
		{"one waits again", map[string]string{"1": status(runs, 5), "2": status(disk, 8)}, false, false},
		{"a new one waits", map[string]string{"1": status(runs, 5), "3": status(disk, 1)}, true, false},
		{"no state", map[string]string{"1": "voluntary_ctxt_switches:\t4\n"}, false, true},
		{"no count", map[string]string{"1": "State:\tS (sleeping)\n"}, false, true},
		{"no number", map[string]string{"1": "State:\tS (sleeping)\nvoluntary_ctxt_switches:\tmany\n"}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			for thread, text := range c.threads {
				if err := os.Mkdir(filepath.Join(dir, thread), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, thread, "status"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			// One that has just ended.
			if err := os.Mkdir(filepath.Join(dir, "9"), 0o700); err != nil {
				t.Fatal(err)
			}
			got, err := readThreads(dir, before)
			if got.hung != c.hung || (err != nil) != c.fails {
				t.Errorf("hangs: %v, %v", got.hung, err)
			}
		})
	}
	if got, err := readThreads("/proc/self/task", nil); err != nil || len(got.sleeps) == 0 {
		t.Errorf("%d threads of this test: %v", len(got.sleeps), err)
	}
	dir := t.TempDir()
	for thread := range maxThreads + 1 {
		if err := os.Mkdir(filepath.Join(dir, fmt.Sprint(thread)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := readThreads(dir, nil); err != nil || !got.hung {
		t.Errorf("of more threads than are read none hangs: %v", err)
	}
}

// A process whose disk hangs shows by its threads, as long as somebody has to know.
func TestReplicaThreadsHang(t *testing.T) {
	testkit.NeedRoot(t)
	collectortest.OwnMounts(t)
	dir, err := os.MkdirTemp("/var/tmp", "plumbline-threads-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	at := filepath.Join(dir, "mounted")
	disk := mountSlow(t, dir, at).Writes
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: "/proc", SysFS: "/sys"}, dataconnWire()).wires[0]
	t.Cleanup(disk.Release)
	disk.Hang()
	writer := osexec.Command(testkit.Tool(t, "dd"), "if=/dev/zero", "of="+filepath.Join(at, "file"), "bs=4096", "count=1", "oflag=direct", "conv=fsync")
	if err := writer.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end := func() error {
		err := errors.New("ended before")
		once.Do(func() { disk.Release(); err = writer.Wait() })
		return err
	}
	t.Cleanup(func() { _ = end() })
	n := &followedProcess{pid: writer.Process.Pid}
	f.byPID[n.pid] = n
	f.sampleThreads()
	if n.threads.hung || n.threads.sleeps != nil {
		t.Error("threads are sampled of which nobody has to know")
	}
	n.threads.wanted = true
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		f.sampleThreads() // the first time it may have begun just now
		if f.sampleThreads(); !n.threads.hung || len(n.threads.sleeps) != 1 {
			return fmt.Errorf("the process whose disk hangs has threads %v", n.threads)
		}
		return nil
	})
	if err := end(); err != nil {
		t.Fatal(err)
	}
	// Of one that has ended nothing is known.
	if f.sampleThreads(); !n.threads.hung || n.threads.sleeps != nil {
		t.Errorf("a process that has ended has threads %v", n.threads)
	}
}

// One of three replicas is stalled, and what is read from it waits there while the others answer later reads. Hours
// later none is taken for answered, and all are in the end.
func TestReplicaReadsOvertake(t *testing.T) {
	v := newTestVolume(t, 3, "--engine-replica-timeout", "30")
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(4)
	v.exact(m, 200, v.Addresses...)
	f := m.collector.wires[0]

	slow := v.Replicas[1]
	halt(t, slow.Process)
	const readers, reads = 8, 200
	done := make(chan struct{})
	go func() {
		defer close(done)
		v.IO(reads, readers, func(i int) error { return v.Read(int64(i)*8192, 8192) })
	}()
	t.Cleanup(func() { resume(t, slow.Process); <-done })
	var late int
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		underWay, overtaken := m.readsUnderWay(slow.Address)
		late = overtaken
		if users, requests := underWay[operation.ViewFrontend], underWay[operation.ViewRequest]; users != readers || requests != readers {
			return fmt.Errorf("%d of %d reads are under way, %d of them at the stopped replica", users, readers, requests)
		}
		return nil
	})
	if late == 0 {
		t.Fatal("no read was overtaken")
	}
	t.Logf("%d of %d reads were overtaken", late, readers)
	lost := m.lost()
	m.ahead.Store(uint64(5 * time.Hour))
	m.samples(missedSamples)
	for range 2 * missedSamples {
		m.ahead.Add(uint64(missedStep))
		m.samples(1)
	}
	r := m.Read()
	if got, oldest := r.Value("plumbline_volume_frontend_in_flight", nil), r.Value(oldestFrontend, nil); got != readers || oldest < (5*time.Hour).Seconds() {
		t.Errorf("%v reads under way, the oldest is %v s old; want %d, and over five hours", got, oldest, readers)
	}
	f.mu.Lock()
	if len(f.doubts) != late {
		t.Errorf("%d reads are doubted, want %d", len(f.doubts), late)
	}
	f.mu.Unlock()
	m.ahead.Store(0)
	resume(t, slow.Process)
	<-done
	m.overWithoutLoss(lost)
	r = m.Settled()
	if got := r.Count(operationtest.FrontendMetric, operationtest.Match{"op": "read"}); got != reads {
		t.Errorf("%d reads counted, want %d", got, reads)
	}
	r.Clean(t)
}

// With data locality strict-local all is on unix sockets. A read that waits for the disk is overtaken
// in every view by those that need no disk.
func TestReplicaReadsOvertakeLocal(t *testing.T) {
	collectortest.OwnMounts(t)
	v, socket := localVolume(t, "--engine-replica-timeout", "30")
	r := v.AddReplica()
	r.Process.Kill()
	_ = os.Remove(socket)
	r.Dir = filepath.Join(r.Dir, "mounted")
	disk := mountSlow(t, filepath.Dir(r.Dir), r.Dir).Reads
	v.StartReplica(r)
	m := startReplicaCollector(t, v)
	v.Start()
	m.Followed(2)
	v.exact(m, 100, v.Addresses...)

	t.Cleanup(disk.Release) // before anything that waits for the replica's end
	disk.Hang()
	hung := make(chan error, 1)
	go func() { hung <- v.Read(0, 8192) }()
	one := map[operation.View]int{operation.ViewFrontend: 1, operation.ViewRequest: 1, operation.ViewService: 1}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if underWay, _ := m.readsUnderWay(v.Addresses[0]); !maps.Equal(underWay, one) {
			return fmt.Errorf("by view, %v reads are under way", underWay)
		}
		return nil
	})
	const reads = 100 // of what was never written
	v.IO(reads, 1, func(i int) error { return v.Read(100<<20+int64(i)*8192, 8192) })
	lost := m.lost()
	m.ahead.Store(uint64(5 * time.Hour))
	for range 3 * missedSamples {
		m.ahead.Add(uint64(missedStep))
		m.samples(1)
	}
	underWay, _ := m.readsUnderWay(v.Addresses[0])
	if oldest := m.Read().Value(oldestService, nil); !maps.Equal(underWay, one) || oldest < (5*time.Hour).Seconds() {
		t.Errorf("by view, %v reads are under way, the replica's oldest is %v s old; want one in each, and over five hours", underWay, oldest)
	}
	f := m.collector.wires[0]
	f.mu.Lock()
	if len(f.doubts) != 3 {
		t.Errorf("%d operations are doubted, want one in each view", len(f.doubts))
	}
	f.mu.Unlock()
	m.ahead.Store(0)
	disk.Release()
	if err := <-hung; err != nil {
		t.Error(err)
	}
	m.overWithoutLoss(lost)
	all := m.Settled()
	if got := all.Count(operationtest.FrontendMetric, operationtest.Match{"op": "read"}); got != reads+1 {
		t.Errorf("%d reads counted, want %d", got, reads+1)
	}
	all.Clean(t)
}

// readsUnderWay counts the reads of users and of one replica, by view, and those of users that will
// be doubted once they are old.
func (m *replicaMeter) readsUnderWay(address string) (underWay map[operation.View]int, late int) {
	m.T.Helper()
	f := m.collector.wires[0]
	f.mu.Lock()
	defer f.mu.Unlock()
	inflight, err := readReplicaMap[bpf.OperationKey, bpf.Operation](f.kernel, "inflight")
	if err != nil {
		m.T.Fatal(err)
	}
	connections, err := readReplicaMap[uint64, bpf.Connection](f.kernel, "connections")
	if err != nil {
		m.T.Fatal(err)
	}
	peers, err := f.peerNames()
	if err != nil {
		m.T.Fatal(err)
	}
	underWay = map[operation.View]int{}
	for key, o := range inflight {
		n, view := f.bySlot[o.Slot], operation.View(o.View)
		if n == nil || operation.Ops[o.Op] != "read" || view != operation.ViewFrontend && f.labels(n, view, o.Peer, peers).Replica != address {
			continue
		}
		underWay[view]++
		for _, c := range connections {
			if view == operation.ViewFrontend && c.Id == key.Connection && overtaken(&o, &c, o.Start+uint64(5*time.Hour)) {
				late++
			}
		}
	}
	return underWay, late
}

// On a unix socket the kernel counts no bytes: an old operation is taken for answered unseen when
// one of its kind that began later has an answer, for long, and not before.
func TestReplicaAnswerUnseenLocal(t *testing.T) {
	testkit.NeedBPF(t)
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "frontend"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	m := startSelf(t, replicaProcess{Backend: "longhorn-v1", Role: bpf.Engine, Volume: "unseen"})
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(); _ = server.Close() })
	message := func(id, typ uint32) []byte {
		return encodeMessage(dataconn.MagicLonghorn, id, typ, uint64(id)<<12, 0, nil)
	}
	const read, unmap, response = 0, 7, 2
	request := func(id, typ uint32) { send(t, client, message(id, typ)); receive(t, server, message(id, typ)) }
	respond := func(id uint32) { send(t, server, message(id, response)); receive(t, client, message(id, response)) }
	inflight := func() float64 { return m.Read().Value("plumbline_volume_frontend_in_flight", nil) }
	lost := func() float64 {
		return m.Read().Value("plumbline_replica_lost_total", operationtest.Match{"reason": "resync"})
	}
	// as many samples as it takes, at the pace at which each counts
	samples := func() {
		for range 2 * missedSamples {
			m.ahead.Add(uint64(missedStep))
			m.samples(1)
		}
	}
	request(1, unmap)
	respond(1)
	request(2, unmap)
	m.samples(2)
	m.unseen(map[platform.AttachMode]string{
		platform.Tracepoints: bpf.DataconnProgReplicaSent,
		platform.Functions:   bpf.DataconnProgReplicaUnixSent,
	}[collectortest.Platform(t).AttachMode], func() { respond(2) })
	m.ahead.Store(uint64(5 * time.Hour))
	samples()
	if got := m.Read().Value(oldestFrontend, nil); inflight() != 1 || got < (5*time.Hour).Seconds() {
		t.Errorf("%v operations under way, the oldest is %v s old; want one of five hours", inflight(), got)
	}
	// A read that began later shows nothing of it, an unmap does.
	request(3, read)
	respond(3)
	samples()
	if got := inflight(); got != 1 {
		t.Errorf("%v operations under way after a later read's answer, want 1", got)
	}
	request(4, unmap)
	respond(4)
	m.samples(2)
	m.ahead.Add(uint64(5 * time.Hour))
	m.samples(3) // hours, but of a few samples
	if got := inflight(); got != 1 {
		t.Errorf("%v operations under way right after a later unmap's answer, want 1", got)
	}
	for range 100 {
		m.Read() // a scrape is no sample
	}
	if got := inflight(); got != 1 {
		t.Errorf("%v operations under way after scrapes, want 1", got)
	}
	samples()
	if got, lost := inflight(), lost(); got != 0 || lost != 1 {
		t.Errorf("%v operations under way and %v lost long after a later unmap's answer, want none and one", got, lost)
	}
}
