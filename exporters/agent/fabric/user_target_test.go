package fabric

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
)

// The names of programs: SPDK's has the number of a CPU. One that the kernel cannot show is refused.
func TestUserTargetNames(t *testing.T) {
	for name, want := range map[string]bool{"spdk_tgt": true, "reactor_0": true, "reactor_12": true, "reactor": false, "spdk_tgt2": false, "": false} {
		if got := nvmeWire.userTarget.is(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, names := range [][]string{{""}, {"*"}, {strings.Repeat("x", untrusted.MaxComm+1)}, {strings.Repeat("x", untrusted.MaxComm+1) + "*"}} {
		if _, err := NewISCSI(collector.Options{}, Options{UserTargets: names}); err == nil || !strings.Contains(err.Error(), "--iscsi.target") {
			t.Errorf("%q: %v", names, err)
		}
		if _, err := NewNVMe(collector.Options{}, Options{UserTargets: names}); err == nil || !strings.Contains(err.Error(), "--nvme.target") {
			t.Errorf("%q: %v", names, err)
		}
	}
	if wire, err := nvmeWire.withUserTargets([]string{strings.Repeat("x", untrusted.MaxComm) + "*"}); err != nil || !wire.userTarget.is(strings.Repeat("x", untrusted.MaxComm)) {
		t.Errorf("a name of the greatest length and a star: %v", err)
	}
}

// targetProcess makes a process in a made-up procfs that is named like a target, a user's and in a cgroup.
func targetProcess(t *testing.T, procfs string, pid, start, user int, group string) {
	t.Helper()
	dir := filepath.Join(procfs, fmt.Sprint(pid))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for file, text := range map[string]string{
		"stat":   fmt.Sprintf("%d (tgtd) S%s %d 0", pid, strings.Repeat(" 0", 18), start),
		"status": fmt.Sprintf("Name:\ttgtd\nUid:\t%d\t%d\t%d\t%d\n", user, user, user, user),
		"cgroup": "0::" + group + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// Between two scans of all processes those that are known are left alone, new ones are found, and those that are gone
// are forgotten.
func TestUserTargetScan(t *testing.T) {
	b := newUserTargetBench(t)
	c := b.collector.(*fabricCollector)
	c.options.ProcFS = b.procfs
	process := func(pid, start int) { targetProcess(t, b.procfs, pid, start, 0, "/") }
	found := func(want map[int]uint64) {
		t.Helper()
		c.userTargets.scanProcesses()
		if fmt.Sprint(c.userTargets.found) != fmt.Sprint(want) {
			t.Errorf("found %v, want %v", c.userTargets.found, want)
		}
	}
	c.userTargets.known = map[int]bool{}
	process(1001, 7)
	found(map[int]uint64{1001: 7})
	process(1002, 8)
	found(map[int]uint64{1001: 7, 1002: 8})
	if err := os.RemoveAll(filepath.Join(b.procfs, "1001")); err != nil {
		t.Fatal(err)
	}
	found(map[int]uint64{1002: 8})
	process(1001, 9)
	found(map[int]uint64{1001: 9, 1002: 8})
	// Another process of that number, which only a scan of all finds.
	process(1002, 10)
	found(map[int]uint64{1001: 9, 1002: 8})
	c.userTargets.known = map[int]bool{}
	found(map[int]uint64{1001: 9, 1002: 10})
}

// However many processes of users' are named like a target, the log has few lines of them, and a scrape waits for none.
func TestUserTargetsRefusedInTheLog(t *testing.T) {
	const many = 4 * collector.LogBurst
	var c *fabricCollector
	log := &collectortest.LockedLog{Locked: func() bool {
		if c == nil {
			return false // it is not made yet
		}
		if !c.mu.TryLock() {
			return true
		}
		c.mu.Unlock()
		return false
	}}
	procfs := t.TempDir()
	for i := range many {
		targetProcess(t, procfs, 1000+i, 7, 1000, "/")
	}
	collector, err := NewISCSI(collector.Options{Log: slog.New(slog.NewTextHandler(log, nil)), ProcFS: procfs}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	c = collector.(*fabricCollector)
	c.userTargets.known = map[int]bool{}
	c.userTargets.scanProcesses()
	if n := c.userTargets.refusals; n != many {
		t.Errorf("%d processes are refused, want %d", n, many)
	}
	if log.Lines == 0 || log.Lines >= many || log.Held > 0 {
		t.Errorf("%d lines for %d processes, %d of them while a scrape would have to wait", log.Lines, many, log.Held)
	}
}

// Many processes of one pod that are named like a target take no other's room, and those without room are counted, each
// once.
func TestTargetsOfOnePod(t *testing.T) {
	const over = 10
	b := newUserTargetBench(t)
	c := b.collector.(*fabricCollector)
	c.options.ProcFS, c.options.SysFS = b.procfs, b.sysfs
	c.initiator.load = c.initiator.try // this kernel need not have it
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	// Numbers that no process has: the kernel knows of no sockets of theirs.
	const first = 5 << 20
	for i := range userTargetShare + over {
		targetProcess(t, b.procfs, first+i, 7, 0, fmt.Sprint(collectortest.OnePod, "/", i))
	}
	targetProcess(t, b.procfs, first-1, 7, 0, collectortest.AnotherPod)
	for range 2 {
		c.scan()
		if c.userTargets.err != nil {
			t.Fatal(c.userTargets.err)
		}
		if n := len(c.userTargets.followed); n != userTargetShare+1 || c.userTargets.followed[first-1] != 7 || c.userTargets.leftOut != over {
			t.Errorf("%d processes are followed, the other pod's: %v; %d are left, want %d", n, c.userTargets.followed[first-1] == 7, c.userTargets.leftOut, over)
		}
	}
	if err := os.RemoveAll(filepath.Join(b.procfs, fmt.Sprint(first-1))); err != nil {
		t.Fatal(err)
	}
	c.scan()
	if n := len(c.userTargets.followed); n != userTargetShare || c.userTargets.leftOut != over {
		t.Errorf("%d processes are followed once the other pod's has ended, %d are left", n, c.userTargets.leftOut)
	}
}
