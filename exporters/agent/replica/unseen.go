package replica

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/operation"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// The answer of an operation can go by unseen: a tracepoint can miss events while another tracer attaches to it or
// leaves. Time alone does not show that: behind a hung disk, or with the other end stopped, an answer can take hours.
// On TCP the kernel's own count of bytes does (see watchedSocket.count). A unix socket has no such count. There, an
// operation is doubted that is old and was overtaken: one of its kind that began later has an answer. But that proves
// nothing, as reads go to one replica each, and one of them may be stalled. So the doubt must last, and nothing that
// the answer may wait for may be stalled meanwhile.

const (
	// missedFor is for how long bytes must be missing from a connection's count before
	// the operations of that time are taken for answered unseen, and missedSamples in how
	// many samples at least: a call that is under way has moved bytes that are not counted yet.
	// As long, and in as many samples, must an operation be doubted on a unix socket.
	missedFor     = 90 * time.Second
	missedSamples = 10
	// missedStep is what one sample adds to a doubt at most: nothing is known of an operation that was not sampled
	// for hours. It is also the age from which on an operation is stalled: less than that an answer's way through
	// one more replica does not take.
	missedStep = missedFor / missedSamples
	// maxThreads is how many threads of a process are read. Go starts one for
	// each call that waits for a disk, so one with more waits for its disk.
	maxThreads = 1024
)

// answeredUnseen reports whether an operation without an answer has had one that went by unseen.
func (f *replicaFollower) answeredUnseen(key bpf.OperationKey, o *bpf.Operation, w *watchedSocket) bool {
	switch {
	case w == nil:
		return false
	case w.tcp:
		return o.Start < w.missedUntil
	}
	d := f.doubts[key]
	return d != nil && d.start == o.Start && d.over()
}

// doubt is about an operation on a unix socket that may have been answered unseen.
type doubt struct {
	start uint64 // the operation's, whose number the wire may use again
	// lasted is for how long it was found so without interruption; at is when last, by the
	// kernel's clock.
	lasted time.Duration
	at     uint64
}

// update goes on with the doubt, or lets it begin anew if the answer may well be waiting.
func (d *doubt) update(now uint64, waits bool) {
	if waits || d.at == 0 {
		d.lasted = 0
	} else {
		d.lasted += min(time.Duration(now-min(now, d.at)), missedStep)
	}
	d.at = now
}

func (d *doubt) over() bool { return d.lasted >= missedFor }

// overtaken reports whether an operation is old and one of its kind that began later has an answer.
func overtaken(o *bpf.Operation, c *bpf.Connection, now uint64) bool {
	if now-min(now, o.Start) < uint64(missedFor) {
		return false
	}
	if operation.Ops[o.Op] == "read" {
		return o.Start < c.AnsweredRead
	}
	return o.Start < c.AnsweredWrite
}

// doubtAnswers takes a sample's view of the operations on unix sockets that may have been answered
// unseen. Whatever else is needed for that the sample has left in the sockets and processes.
func (f *replicaFollower) doubtAnswers(inflight map[bpf.OperationKey]bpf.Operation, connections map[uint64]bpf.Connection, now uint64) {
	local := map[uint32]uint64{} // connections' numbers to sockets
	for inode, w := range f.sockets {
		if !w.tcp && w.connection != 0 {
			local[w.connection] = inode
		}
	}
	standing := standingOperations(inflight, now)
	doubts := map[bpf.OperationKey]*doubt{}
	suspects := map[*followedProcess]bool{}
	for key, o := range inflight {
		inode, ok := local[key.Connection]
		c := connections[inode]
		n := f.bySlot[o.Slot]
		if !ok || n == nil || c.Id != key.Connection || !overtaken(&o, &c, now) {
			continue
		}
		d := f.doubts[key]
		if d == nil || d.start != o.Start {
			d = &doubt{start: o.Start}
		}
		on := f.localReplicas(n, operation.View(o.View))
		d.update(now, waits(n, operation.View(o.View), f.sockets[inode], on, standing))
		doubts[key] = d
		for _, r := range on {
			suspects[r] = true
		}
	}
	f.doubts = doubts
	for _, n := range f.byPID {
		if !suspects[n] {
			n.threads = threads{}
		}
		n.threads.wanted = suspects[n]
	}
}

// standingOperation is whose operation is stalled.
type standingOperation struct {
	slot uint32
	view operation.View
}

// standingOperations returns whose operations have had no answer for so long that whatever needs it waits, too.
func standingOperations(inflight map[bpf.OperationKey]bpf.Operation, now uint64) map[standingOperation]bool {
	standing := map[standingOperation]bool{}
	for _, o := range inflight {
		if now-min(now, o.Start) >= uint64(missedStep) {
			standing[standingOperation{o.Slot, operation.View(o.View)}] = true
		}
	}
	return standing
}

// localReplicas are the replicas whose disks an operation on a unix socket may wait for: the
// process itself, or the one that its engine talks to without TCP.
func (f *replicaFollower) localReplicas(n *followedProcess, view operation.View) []*followedProcess {
	switch view {
	case operation.ViewService:
		return []*followedProcess{n}
	case operation.ViewFrontend:
		return nil // its requests to replicas show it
	}
	var replicas []*followedProcess
	for _, r := range f.byPID {
		if r.Role == bpf.Replica && r.Unix && r.Volume == n.Volume && r.Backend == n.Backend {
			replicas = append(replicas, r)
		}
	}
	return replicas
}

// waits reports whether the answer of a process's operation may be waiting for something that is stalled. Of an
// engine's requests to its replicas any one counts, not only those that began later than its user's: what it cannot
// send, because a replica does not read, is not seen.
func waits(n *followedProcess, view operation.View, w *watchedSocket, local []*followedProcess, standing map[standingOperation]bool) bool {
	if n.stopped.since != 0 {
		return true
	}
	for _, r := range local {
		if r.stopped.since != 0 || r.threads.hung {
			return true
		}
	}
	switch view {
	case operation.ViewFrontend:
		return standing[standingOperation{n.slot, operation.ViewRequest}]
	case operation.ViewRequest:
		if w.unread > 0 && w.age > 0 {
			return true // it may have arrived, and the engine does not read it
		}
		for _, r := range local {
			if standing[standingOperation{r.slot, operation.ViewService}] {
				return true
			}
		}
	}
	return false
}

// threads is what the samples found of a process's threads.
type threads struct {
	// wanted is set as long as somebody has to know.
	wanted bool
	// hung is set if one has been in uninterruptible sleep, as for a disk, since the sample before,
	// or if that is not known.
	hung bool
	// sleeps is how often each has gone to sleep.
	sleeps map[string]uint64
}

// sampleThreads samples the threads of the processes that want it. It holds no lock: procfs may make it wait.
func (f *replicaFollower) sampleThreads() {
	f.mu.Lock()
	wanted := map[*followedProcess]threads{}
	for _, n := range f.byPID {
		if n.threads.wanted {
			wanted[n] = n.threads
		}
	}
	f.mu.Unlock()
	for n, before := range wanted {
		path := filepath.Join(f.options.ProcFS, strconv.Itoa(n.pid), "task")
		owner := pod.Owner(f.options.ProcFS, n.pid)
		now, err := untrusted.Call(f.reader.calls, untrusted.Owner{User: owner}, path, func() (threads, error) { return readThreads(path, before.sleeps) })
		if err != nil {
			f.limitedLog.Debug("threads of a replica", "pid", n.pid, "err", err)
			now = threads{hung: true}
		}
		now.wanted = true
		f.mu.Lock()
		n.threads = now
		f.mu.Unlock()
	}
}

// readThreads reads a process's folder task in procfs. before is how often each thread had gone to
// sleep at the sample before: a disk makes every thread wait for it now and then, but not for long.
func readThreads(path string, before map[string]uint64) (threads, error) {
	dir, err := os.Open(path)
	if err != nil {
		return threads{}, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(maxThreads + 1)
	if err != nil && !errors.Is(err, io.EOF) {
		return threads{}, err
	}
	now := threads{hung: len(names) > maxThreads, sleeps: make(map[string]uint64, len(names))}
	for _, name := range names {
		text, err := untrusted.ReadProc(filepath.Join(path, name, "status"), 8192)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		if err != nil {
			return threads{}, err
		}
		state, sleeps, err := threadStatus(text)
		if err != nil {
			return threads{}, fmt.Errorf("%s/%s/status: %w", path, name, err)
		}
		now.sleeps[name] = sleeps
		if last, known := before[name]; state == 'D' && (!known || last == sleeps) {
			now.hung = true
		}
	}
	return now, nil
}

// threadStatus returns a thread's state and how often it has gone to sleep, from its status.
func threadStatus(text []byte) (state byte, sleeps uint64, err error) {
	counted := false
	for line := range bytes.Lines(text) {
		if value, ok := bytes.CutPrefix(line, []byte("State:")); ok {
			if value = bytes.TrimSpace(value); len(value) > 0 {
				state = value[0]
			}
		}
		if value, ok := bytes.CutPrefix(line, []byte("voluntary_ctxt_switches:")); ok {
			if sleeps, err = strconv.ParseUint(string(bytes.TrimSpace(value)), 10, 64); err != nil {
				return 0, 0, err
			}
			counted = true
		}
	}
	if state == 0 || !counted {
		return 0, 0, errors.New("it names no state or counts no context switches")
	}
	return state, sleeps, nil
}
