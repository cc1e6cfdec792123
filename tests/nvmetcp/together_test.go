package nvmetcp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"

	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	testNQN    = "nqn.2026-11.io.plumbline:disk"
	diskBlocks = 16 << 10
)

func newFile(t *testing.T) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Truncate(diskBlocks * BlockSize); err != nil {
		t.Fatal(err)
	}
	return f
}

// startTarget starts a target with a disk of diskBlocks.
func startTarget(t *testing.T, o Options) *Target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.NQN, o.Size, o.Log = testNQN, diskBlocks*BlockSize, t.Logf
	target, err := Start(l, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	return target
}

func connect(t *testing.T, target *Target, queues int, o HostOptions) *Host {
	t.Helper()
	h, err := Connect(target.Address(), testNQN, queues, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.end() })
	return h
}

func random(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += 4 {
		le.PutUint32(b[i:], rand.Uint32())
	}
	return b
}

// sizes are in blocks, with how often the target has to request that much.
var sizes = map[int]int{1: 0, 8: 0, 16: 0, 17: 1, 128: 1, 129: 2, 256: 2, 2048: 16}

// What is written is read back, and is in the file, whatever both ends agree on.
func TestWriteAndRead(t *testing.T) {
	for _, o := range []HostOptions{{}, {HeaderDigest: true}, {DataDigest: true},
		{HeaderDigest: true, DataDigest: true, NoFlowControl: true}, {Alignment: 128}, {HeaderDigest: true, Alignment: 16}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			f := newFile(t)
			h := connect(t, startTarget(t, Options{Disk: f}), 2, o)
			if h.Blocks != diskBlocks {
				t.Errorf("%d blocks", h.Blocks)
			}
			lba := uint64(3)
			for blocks, r2ts := range sizes {
				writeAndRead(t, h, f, lba, blocks, r2ts)
				lba += uint64(blocks)
			}
			if err := h.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func writeAndRead(t *testing.T, h *Host, f *os.File, lba uint64, blocks, r2ts int) {
	t.Helper()
	data := random(blocks * BlockSize)
	w, err := h.queues[0].do(WriteBlocks(lba, data))
	if err != nil {
		t.Fatalf("writing %d blocks: %v", blocks, err)
	}
	if w.R2Ts != r2ts {
		t.Errorf("%d blocks were requested in %d parts, not %d", blocks, w.R2Ts, r2ts)
	}
	if err := h.Flush(1); err != nil {
		t.Fatal(err)
	}
	there := make([]byte, len(data))
	if _, err := f.ReadAt(there, int64(lba)*BlockSize); err != nil || !bytes.Equal(there, data) {
		t.Errorf("%d blocks are not in the file: %v", blocks, err)
	}
	var short [2]bool
	for i := range short {
		r, err := h.queues[1].do(ReadBlocks(lba, blocks))
		if err != nil || !bytes.Equal(r.data, data) {
			t.Errorf("%d blocks are read as others: %v", blocks, err)
		}
		if want := (len(data) + maxTargetData - 1) / maxTargetData; r.DataPDUs != want {
			t.Errorf("%d blocks came in %d PDUs, not %d", blocks, r.DataPDUs, want)
		}
		short[i] = r.Short
	}
	if short != [2]bool{false, h.o.NoFlowControl} {
		t.Errorf("reads without a response: %v", short)
	}
}

func TestShort(t *testing.T) {
	for _, c := range []struct {
		o             Options
		noFlowControl bool
		want          int // of 4
	}{
		{Options{}, true, 2},
		{Options{ShortEvery: 1}, true, 4},
		{Options{ShortEvery: 1}, false, 0},
		{Options{ShortEvery: 1, AlwaysShort: true}, false, 4},
		{Options{ShortEvery: -1, AlwaysShort: true}, true, 0},
	} {
		c.o.Disk = newFile(t)
		h := connect(t, startTarget(t, c.o), 1, HostOptions{NoFlowControl: c.noFlowControl})
		short := 0
		for range 4 {
			r, err := h.queues[0].do(ReadBlocks(0, 1))
			if err != nil {
				t.Fatal(err)
			}
			if r.Short {
				short++
			}
		}
		if short != c.want {
			t.Errorf("every %d, always %v, requested %v: %d of 4", c.o.ShortEvery, c.o.AlwaysShort, c.noFlowControl, short)
		}
	}
}

func TestZeroesAndDiscard(t *testing.T) {
	f := newFile(t)
	h := connect(t, startTarget(t, Options{Disk: f}), 1, HostOptions{})
	data := random(8 * BlockSize)
	if err := h.Write(0, 0, data); err != nil {
		t.Fatal(err)
	}
	clear(data[2*BlockSize : 5*BlockSize])
	for _, c := range []Command{ZeroBlocks(2, 3), DiscardBlocks(6, 1)} {
		if _, err := h.queues[0].do(c); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := h.Read(0, 0, 8); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other blocks than three are zero: %v", err)
	}
}

func TestErrors(t *testing.T) {
	f := newFile(t)
	h := connect(t, startTarget(t, Options{Disk: f, BadLBA: 100, BadBlocks: 8}), 1, HostOptions{DataDigest: true})
	long := ReadBlocks(0, 2)
	long.Read = BlockSize
	for _, c := range []struct {
		what string
		Command
		want Status
	}{
		{"a bad read", ReadBlocks(99, 2), UnrecoveredRead},
		{"a bad write", WriteBlocks(107, random(20*BlockSize)), WriteFault},
		{"bad zeroes", ZeroBlocks(50, 100), WriteFault},
		{"a read before it", ReadBlocks(98, 2), Success},
		{"a read after it", ReadBlocks(108, 2), Success},
		{"a read to the end", ReadBlocks(diskBlocks-1, 1), Success},
		{"a read beyond the end", ReadBlocks(diskBlocks-1, 2), OutOfRange},
		{"a write far beyond it", WriteBlocks(1<<63, random(BlockSize)), OutOfRange},
		{"a read at the last number", ReadBlocks(1<<64-1, 1), OutOfRange},
		{"a discard beyond it", DiscardBlocks(diskBlocks, 1), OutOfRange},
		{"too much data", long, DataLengthInvalid},
		{"an unknown opcode", Opcode(0x30), InvalidOpcode},
	} {
		_, err := h.queues[0].do(c.Command)
		if c.want == Success && err != nil || c.want != Success && err != c.want|DoNotRetry {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if got, err := h.Read(0, 99, 1); err != nil || !bytes.Equal(got, make([]byte, BlockSize)) {
		t.Errorf("what failed has written: %v", err)
	}
	f.Close()
	for c, want := range map[*Command]Status{{entry: ReadBlocks(0, 1).entry, Read: BlockSize}: UnrecoveredRead,
		{entry: WriteBlocks(0, make([]byte, BlockSize)).entry, Write: make([]byte, BlockSize)}: WriteFault, {entry: Flush().entry}: WriteFault} {
		if _, err := h.queues[0].do(*c); err != want|DoNotRetry {
			t.Errorf("opcode %d on a closed disk: %v", c.entry.opcode(), err)
		}
	}
}

func TestRefused(t *testing.T) {
	target := startTarget(t, Options{Disk: newFile(t), Queues: 2})
	if h, err := Connect(target.Address(), testNQN+"x", 1, HostOptions{}); err != ConnectInvalid|DoNotRetry {
		t.Errorf("another subsystem: %v, %v", h, err)
	}
	if h, err := Connect(target.Address(), testNQN, 3, HostOptions{}); err == nil {
		t.Errorf("more queues than there are: %v", h)
	}
	a, b := connect(t, target, 1, HostOptions{}), connect(t, target, 2, HostOptions{})
	if a.id == b.id {
		t.Errorf("two hosts have controller %d", a.id)
	}
	for what, c := range map[string]struct {
		queue uint16
		size  int
		want  Status
	}{"a queue that is there already": {1, queueSize, SequenceError}, "a queue that cannot be": {3, queueSize, ConnectInvalid},
		"a queue that is too long": {2, queueSize + 1, ConnectInvalid}, "a queue that is too short": {2, 1, ConnectInvalid}} {
		if q, err := a.open(target.Address(), testNQN, c.queue, c.size); err != c.want|DoNotRetry {
			t.Errorf("%s: %v, %v", what, q, err)
		}
	}
	b.end()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if target.controllerOf(b.id, hostNQN) != nil {
			return errors.New("the controller of a host that has left is there")
		}
		return nil
	})
	if q, err := b.open(target.Address(), testNQN, 1, queueSize); err != ConnectInvalid|DoNotRetry {
		t.Errorf("a queue of it: %v, %v", q, err)
	}
}

// The target reports how much of a queue it has taken, unless the host disables this.
func TestQueueHead(t *testing.T) {
	const size = 5
	target := startTarget(t, Options{Disk: newFile(t)})
	for _, none := range []bool{false, true} {
		q := connect(t, target, 1, HostOptions{QueueSize: size, NoFlowControl: none}).queues[0]
		for i := range 2 * size {
			want := uint16((i + 2) % size) // Connect was the first
			if none {
				want = 0xffff
			}
			if task, err := q.do(Flush()); err != nil || task.head != want {
				t.Errorf("command %d, no flow control: %v: %v, the head is %d", i, none, err, task.head)
			}
		}
	}
}

// Requests for events are held, up to the target's limit.
func TestEvents(t *testing.T) {
	h := connect(t, startTarget(t, Options{Disk: newFile(t)}), 1, HostOptions{}) // which has requested one
	var held []*Task
	for range maxEvents - 1 {
		task, err := h.admin.submit(Command{entry: newCommand(adminAsyncEvent)})
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, task)
	}
	if _, err := h.admin.do(Command{entry: newCommand(adminAsyncEvent)}); err != TooManyEvents {
		t.Errorf("one more: %v", err)
	}
	for i, task := range held {
		select {
		case <-task.done:
			t.Errorf("request %d is answered: %v", i, task.err)
		default:
		}
	}
}

// counting is a disk that counts calls of Sync.
type counting struct {
	Disk
	syncs atomic.Int64
}

func (c *counting) Sync() error {
	c.syncs.Add(1)
	return c.Disk.Sync()
}

func TestForced(t *testing.T) {
	disk := &counting{Disk: newFile(t)}
	h := connect(t, startTarget(t, Options{Disk: disk}), 1, HostOptions{})
	plain := WriteBlocks(0, random(BlockSize))
	forced := WriteBlocks(0, plain.Write)
	le.PutUint16(forced.entry[50:], forceUnitAccess)
	for i, c := range []Command{plain, forced, Flush()} {
		if _, err := h.queues[0].do(c); err != nil || disk.syncs.Load() != int64(i) {
			t.Errorf("command %d: %v, %d syncs", i, err, disk.syncs.Load())
		}
	}
}

// gate is a disk that holds back.
type gate struct {
	Disk
	came, open chan struct{}
}

func (g *gate) ReadAt(b []byte, at int64) (int, error) {
	g.came <- struct{}{}
	<-g.open
	return g.Disk.ReadAt(b, at)
}

// Many commands are under way on several queues, as many as there are workers at the disk.
func TestOutstanding(t *testing.T) {
	const (
		queues, workers, commands = 3, 4, 200
		each                      = 5 // blocks
	)
	f := newFile(t)
	data := random(commands * each * BlockSize)
	if _, err := f.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	g := &gate{Disk: f, came: make(chan struct{}, commands), open: make(chan struct{})}
	h := connect(t, startTarget(t, Options{Disk: g, Workers: workers}), queues, HostOptions{HeaderDigest: true, DataDigest: true, NoFlowControl: true})
	var tasks []*Task
	for i := range commands {
		task, err := h.Submit(i%queues, ReadBlocks(uint64(i*each), each))
		if err != nil {
			t.Fatal(err)
		}
		tasks = append(tasks, task)
	}
	for range queues * workers {
		<-g.came
	}
	select {
	case <-g.came:
		t.Error("more commands are at the disk than there are workers")
	default:
	}
	close(g.open)
	for i, task := range tasks {
		if got, err := task.Wait(); err != nil || !bytes.Equal(got, data[i*each*BlockSize:][:each*BlockSize]) {
			t.Errorf("command %d: %v", i, err)
		}
	}
}

// One command is held, and a later one is answered before it.
func TestOutOfOrder(t *testing.T) {
	g := &gate{Disk: newFile(t), came: make(chan struct{}, 1), open: make(chan struct{})}
	h := connect(t, startTarget(t, Options{Disk: g, Workers: 2}), 1, HostOptions{})
	held, err := h.Submit(0, ReadBlocks(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	<-g.came
	if err := h.Write(0, 0, random(100*BlockSize)); err != nil {
		t.Error(err)
	}
	select {
	case <-held.done:
		t.Error("what is held is answered")
	default:
	}
	close(g.open)
	if _, err := held.Wait(); err != nil {
		t.Error(err)
	}
}

// Writes of all sizes at once, which interleave.
func TestWritesAtOnce(t *testing.T) {
	const queues, rounds = 3, 40
	f := newFile(t)
	h := connect(t, startTarget(t, Options{Disk: f}), queues, HostOptions{DataDigest: true})
	var g errgroup.Group
	lengths := []int{1, 16, 17, 128, 130, 300}
	lba := uint64(0)
	want := make([]byte, diskBlocks*BlockSize)
	for i := range rounds {
		data, at := random(lengths[i%len(lengths)]*BlockSize), lba
		copy(want[at*BlockSize:], data)
		lba += uint64(len(data) / BlockSize)
		g.Go(func() error { return h.Write(i%queues, at, data) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file is another: %v", err)
	}
}

func TestEnds(t *testing.T) {
	g := &gate{Disk: newFile(t), came: make(chan struct{}, 1), open: make(chan struct{})}
	target := startTarget(t, Options{Disk: g})
	h := connect(t, target, 1, HostOptions{})
	held, err := h.Submit(0, ReadBlocks(0, 1))
	if err != nil {
		t.Fatal(err)
	}
	<-g.came
	closed := make(chan error)
	go func() { closed <- target.Close() }()
	if _, err := held.Wait(); err == nil {
		t.Error("a command of a target that has ended succeeds")
	}
	close(g.open)
	if err := <-closed; err != nil {
		t.Error(err)
	}
	if task, err := h.Submit(0, ReadBlocks(0, 1)); err == nil {
		_, err = task.Wait()
		if err == nil {
			t.Error("and another one")
		}
	}
}

// With the admin queue the I/O queues end.
func TestAdminEnds(t *testing.T) {
	target := startTarget(t, Options{Disk: newFile(t)})
	h := connect(t, target, 2, HostOptions{})
	h.admin.end()
	for _, q := range h.queues {
		q.group.Wait()
	}
}
