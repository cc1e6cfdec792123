package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/untrusted/untrustedtest"
	"github.com/plumbline/plumbline/tests/testkit"
)

const (
	oneReplica = "longhorn --volume-name v replica --listen 1.2.3.4:10000 /d"
)

// storageProcess makes a process of root's in a made-up procfs, which is named as an engine or replica and in a cgroup.
// Without a command line its own is a FIFO, so that its reader hangs. It returns the command line's file.
func storageProcess(t *testing.T, procfs string, pid int, group, line string) (cmdline string) {
	t.Helper()
	dir := filepath.Join(procfs, strconv.Itoa(pid))
	cmdline = filepath.Join(dir, "cmdline")
	err := os.MkdirAll(dir, 0o700)
	for name, text := range map[string]string{
		"stat":   strconv.Itoa(pid) + " (longhorn) S 1 1 1 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 9 0 4711 1 1 1\n",
		"status": "Name:\tlonghorn\nUid:\t0\t0\t0\t0\n",
		"cgroup": "0::" + group + "\n",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if line == "" {
		err = errors.Join(err, unix.Mkfifo(cmdline, 0o600))
	} else {
		err = errors.Join(err, os.WriteFile(cmdline, []byte(strings.ReplaceAll(line, " ", "\x00")+"\x00"), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return cmdline
}

// However many processes of one pod hang, whatever cgroups they are in, those of others are read, and the agent's own
// calls are made.
func TestReplicaProcessesOfOnePodHang(t *testing.T) {
	const hanging = 16
	procfs, calls := t.TempDir(), untrusted.NewCalls(100*time.Millisecond, hanging)
	r := replicaReader{procfs, dataconnWire(), calls, newOwnerWaits(time.Hour)} // none is left, however long each takes
	for pid := 100; pid <= 100+hanging; pid++ {
		storageProcess(t, procfs, pid, fmt.Sprint(collectortest.OnePod, "/", pid), "")
		if p, _, err := r.read(pid); !errors.Is(err, untrusted.ErrUnanswered) && !errors.Is(err, untrusted.ErrTooMany) {
			t.Errorf("process %d is %+v, %v; want no answer", pid, p, err)
		}
	}
	storageProcess(t, procfs, 7, collectortest.AnotherPod, oneReplica)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		r.waits.begin()
		p, _, err := r.read(7)
		if err == nil && p == nil {
			err = errors.New("a replica of another pod is taken for nothing")
		}
		return errors.Join(err, calls.Do("the agent's own", func() error { return nil }))
	})
}

// However many directories of one pod's replicas hang, those of another pod's are resolved.
func TestReplicaDirectoriesOfOnePodHang(t *testing.T) {
	const hanging = 16
	hung, release := untrustedtest.HungMount(t)
	defer release()
	procfs, healthy := t.TempDir(), t.TempDir()
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs, SysFS: t.TempDir()}, dataconnWire()).wires[0]
	f.disks = untrusted.NewCalls(50*time.Millisecond, hanging)
	process := func(pid int, group, root string) *followedProcess {
		storageProcess(t, procfs, pid, group, oneReplica)
		if err := os.Symlink(root, filepath.Join(procfs, strconv.Itoa(pid), "root")); err != nil {
			t.Fatal(err)
		}
		return &followedProcess{pid: pid, replicaProcess: replicaProcess{Directory: "/d"}}
	}
	for pid := 100; pid <= 100+hanging; pid++ {
		n := process(pid, fmt.Sprint(collectortest.OnePod, "/", pid), hung)
		if device, err := f.place(n, f.ownerOf(n)); !errors.Is(err, untrusted.ErrUnanswered) && !errors.Is(err, untrusted.ErrTooMany) {
			t.Errorf("the directory of process %d is on %q, %v; want no answer", pid, device, err)
		}
	}
	if err := os.Mkdir(filepath.Join(healthy, "d"), 0o700); err != nil {
		t.Fatal(err)
	}
	n := process(7, collectortest.AnotherPod, healthy)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_, err := f.place(n, f.ownerOf(n))
		return err
	})
}

// However many directories of one disk hang, those of another disk are resolved, of the same pod, too: one may have
// all of a node's replicas.
func TestReplicaDirectoriesOfOneDiskHang(t *testing.T) {
	const hanging = 32
	hung, release := untrustedtest.HungMount(t)
	defer release()
	procfs, root := t.TempDir(), t.TempDir()
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs, SysFS: t.TempDir()}, dataconnWire()).wires[0]
	f.disks = untrusted.NewCalls(50*time.Millisecond, hanging)
	if err := os.Mkdir(filepath.Join(root, "healthy"), 0o700); err != nil {
		t.Fatal(err)
	}
	process := func(pid int, root, directory string) *followedProcess {
		storageProcess(t, procfs, pid, collectortest.OnePod, oneReplica)
		dir := filepath.Join(procfs, strconv.Itoa(pid))
		table := "30 1 8:1 / / rw - ext4 /dev/sda1 rw\n31 30 8:16 / /hung rw - ext4 /dev/sdb rw\n32 30 8:32 / /healthy rw - ext4 /dev/sdc rw\n"
		if err := errors.Join(os.Symlink(root, filepath.Join(dir, "root")), os.WriteFile(filepath.Join(dir, "mountinfo"), []byte(table), 0o600)); err != nil {
			t.Fatal(err)
		}
		return &followedProcess{pid: pid, replicaProcess: replicaProcess{Directory: directory}}
	}
	for pid := 100; pid <= 100+hanging; pid++ {
		n := process(pid, hung, "/hung/r")
		if device, err := f.place(n, f.ownerOf(n)); !errors.Is(err, untrusted.ErrUnanswered) && !errors.Is(err, untrusted.ErrTooMany) {
			t.Errorf("the directory of process %d is on %q, %v; want no answer", pid, device, err)
		}
	}
	n := process(7, root, "/healthy")
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		_, err := f.place(n, f.ownerOf(n))
		return err
	})
}

// While a process's command line hangs, it is decided about others.
func TestReplicaHungProcessHoldsUpNobody(t *testing.T) {
	procfs := t.TempDir()
	options := collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs, Calls: untrusted.NewCalls(time.Hour, 8)}
	f := newReplica(options, dataconnWire()).wires[0]
	fifo := storageProcess(t, procfs, 7, collectortest.OnePod, "")
	considered := make(chan error, 1)
	go func() { considered <- f.consider(7) }()
	var writer int
	testkit.Eventually(t, testkit.DefaultTimeout, func() (err error) {
		writer, err = unix.Open(fifo, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0) // fails as long as nobody reads
		return err
	})
	ended := make(chan error, 1)
	go func() { ended <- f.ended(8) }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(testkit.DefaultTimeout):
		t.Error("the end of another process waits for the command line that hangs")
	}
	if err := unix.Close(writer); err != nil {
		t.Fatal(err)
	}
	if err := <-considered; err != nil {
		t.Error(err)
	}
}

// A pod that was waited for long enough, which one process that hangs is not, is left for the next scan, and that is no
// problem of its processes. Others' are read.
func TestReplicaWaits(t *testing.T) {
	procfs := t.TempDir()
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs}, dataconnWire()).wires[0]
	for pid, group := range map[int]string{7: collectortest.OnePod, 8: collectortest.OnePod + "/x", 9: collectortest.AnotherPod, 10: collectortest.OnePod} {
		storageProcess(t, procfs, pid, group, oneReplica)
	}
	owner := pod.Owner(procfs, 7)
	f.reader.waits.spent[owner] = untrusted.DefaultTimeout
	if f.reader.waits.enough(owner) {
		t.Error("one process that hangs has all others of its pod left")
	}
	f.reader.waits.since(owner, time.Now().Add(-untrusted.DefaultTimeout))
	f.byPID[8] = &followedProcess{pid: 8, start: 4711}
	f.byPID[10] = &followedProcess{pid: 10, start: 1}
	if err := f.consider(7); !errors.Is(err, errWaited) || f.problems != 0 {
		t.Errorf("a process of a pod that was waited for: %v, %d problems", err, f.problems)
	}
	if err := f.consider(8); err != nil || f.problems != 0 {
		t.Errorf("one that is followed: %v, %d problems", err, f.problems)
	}
	if err := f.consider(10); !errors.Is(err, errWaited) || f.problems != 0 {
		t.Errorf("one that has the number of one that is followed: %v, %d problems", err, f.problems)
	}
	if _, _, err := f.reader.read(9); errors.Is(err, errWaited) {
		t.Error("another pod's process is left for the next scan")
	}
	f.reader.waits.begin()
	if _, _, err := f.reader.read(7); errors.Is(err, errWaited) {
		t.Error("the next scan leaves it, too")
	}
}

// A scan examines first those that are not followed yet, each time in another order: a late one may be left for the
// next scan.
func TestReplicaTurns(t *testing.T) {
	const each = 8
	procfs := t.TempDir()
	var seen []string
	wire := dataconnWire()
	wire.recognise = func(args []string, _ func() string) (*replicaProcess, error) {
		seen = append(seen, args[1])
		if args[1] == "followed" {
			return &replicaProcess{}, nil
		}
		return nil, nil
	}
	f := newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs}, wire).wires[0]
	for i := range each {
		storageProcess(t, procfs, 100+i, collectortest.OnePod, "longhorn followed")
		f.byPID[100+i] = &followedProcess{pid: 100 + i, start: 4711}
		storageProcess(t, procfs, 200+i, collectortest.OnePod, fmt.Sprint("longhorn new-", i))
	}
	firsts := map[string]bool{}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		seen = nil
		if err := f.scan(); err != nil {
			return err
		}
		if len(seen) != 2*each || slices.Index(seen, "followed") != each {
			return fmt.Errorf("they are examined in the order %v", seen)
		}
		if firsts[seen[0]] = true; len(firsts) < each {
			return fmt.Errorf("first in turn have been %v alone", firsts)
		}
		return nil
	})
}

// A user that can start many processes named like a replica fills no log, and keeps nothing out of it that is of the
// agent itself.
func TestReplicaLogIsBounded(t *testing.T) {
	log := &collectortest.LockedLog{Locked: func() bool { return false }}
	f := newReplica(collector.Options{Log: slog.New(slog.NewTextHandler(log, nil))}, dataconnWire()).wires[0]
	const many = 4 * collector.LogBurst
	for pid := range many {
		f.logged = 0 // as after a scan
		f.report(pid, errors.New("not understood"))
	}
	lines := log.Lines
	if lines == 0 || lines >= many {
		t.Errorf("%d lines of %d", lines, many)
	}
	for range many {
		f.log.Error("something of the agent's own")
	}
	if log.Lines != lines+many {
		t.Errorf("then %d lines of %d about the agent itself", log.Lines-lines, many)
	}
}

// A process that a process event reports while all are scanned is not taken for one that has ended.
func TestReplicaScanMissesNewcomer(t *testing.T) {
	procfs := t.TempDir()
	storageProcess(t, procfs, 7, collectortest.OnePod, oneReplica)
	var f *replicaFollower
	wire := dataconnWire()
	wire.recognise = func([]string, func() string) (*replicaProcess, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.byPID[99] = &followedProcess{pid: 99}
		return nil, nil
	}
	f = newReplica(collector.Options{Log: slog.New(slog.DiscardHandler), ProcFS: procfs}, wire).wires[0]
	if err := f.scan(); err != nil || f.byPID[99] == nil {
		t.Errorf("followed is %v, %v", f.byPID, err)
	}
}
