package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/tests/testkit"
)

// cpuPerRead is how much CPU time a read of the read probe may take. One that sleeps between its
// reads takes a tenth of a millisecond, one that spins all of the 50 ms from one read to the next.
const cpuPerRead = 5 * time.Millisecond

// The lab's read probe sleeps between its reads however busy the machine was when it started: here
// it starts where any other process goes first, and is measured once it has the CPU like others.
func TestReadProbeSleeps(t *testing.T) {
	testkit.NeedRoot(t)
	testkit.Tool(t, "ioping")
	lab := &config.Lab{
		Files: filepath.Join(testkit.Root(), "manifests", "lab"), Repo: testkit.Root(), Dir: t.TempDir(), PostgresBin: "/bin",
		PortBase: portBase, Databases: []string{"postgresql"},
	}
	if _, err := lab.Load([]string{"local"}, nil); err != nil {
		t.Fatal(err)
	}
	database, err := lab.Database("postgresql")
	if err != nil {
		t.Fatal(err)
	}
	process, _ := database.Processes["local-readprobe"].(map[string]any)
	command, _ := process["command"].(string)
	_, probe, found := strings.Cut(command, "exec ")
	if !found {
		t.Fatalf("the lab's read probe is %q", command)
	}
	if err := os.MkdirAll(lab.Classes[0].Mount(), 0o755); err != nil {
		t.Fatal(err)
	}
	perRead, reads := startedBehindOthers(t, probe, uint64(lab.ProbeMiB())<<20)
	t.Logf("%v of CPU time a read, %d reads", perRead, reads)
	if perRead > cpuPerRead {
		t.Errorf("the read probe takes %v of CPU time a read, want at most %v: does it spin between its reads?", perRead, cpuPerRead)
	}
}

// startedBehindOthers runs a command that makes a file of so many bytes and reads it, starts it behind two busy
// loops on its CPU, and returns the CPU time that each of a hundred reads took after these ended.
func startedBehindOthers(t *testing.T, command string, file uint64) (perRead time.Duration, reads uint64) {
	t.Helper()
	runtime.LockOSThread() // children start with this thread's CPU
	defer runtime.UnlockOSThread()
	var before, one unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	for cpu := range 1024 {
		if before.IsSet(cpu) {
			one.Set(cpu)
			break
		}
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &before)
	start := func(words ...string) *exec.Cmd {
		cmd := exec.Command(words[0], words[1:]...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			_ = cmd.Wait()
		})
		return cmd
	}
	reading := func(group int, from uint64, n uint64) (u usage) {
		testkit.Eventually(t, defaultTimeout, func() error {
			var err error
			u, err = usageOf(group)
			if err == nil && u.reads < from+n {
				err = fmt.Errorf("%d reads of %d", u.reads-from, n)
			}
			return err
		})
		return u
	}
	// Its first life makes its file, which is not what is measured here.
	first := start("sh", "-c", "exec "+command)
	testkit.Eventually(t, defaultTimeout, func() error {
		u, err := usageOf(first.Process.Pid)
		if err == nil && u.written < file {
			err = fmt.Errorf("%d bytes are written", u.written)
		}
		return err
	})
	made, err := usageOf(first.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	reading(first.Process.Pid, made.reads, 20)
	if err := syscall.Kill(-first.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	loops := []*exec.Cmd{start("sh", "-c", "while :; do :; done"), start("sh", "-c", "while :; do :; done")}
	group := start("nice", "-n", "19", "sh", "-c", "exec "+command).Process.Pid

	// Once it reads it has measured whatever it measures at its start.
	reading(group, 0, 20)
	for _, l := range loops {
		if err := syscall.Kill(-l.Process.Pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	processes, err := processesOf(group)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range processes {
		threads, err := procfs.AllThreads(p.PID)
		if err != nil {
			t.Fatal(err)
		}
		for _, thread := range threads {
			if err := unix.Setpriority(unix.PRIO_PROCESS, thread.PID, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	from, err := usageOf(group)
	if err != nil {
		t.Fatal(err)
	}
	to := reading(group, from.reads, 100)
	reads = to.reads - from.reads
	return (to.cpu - from.cpu) / time.Duration(reads), reads
}

// usage is what the processes of a group have used so far.
type usage struct {
	reads, written uint64 // reads of 8 KiB from a block device, bytes written
	cpu            time.Duration
}

func usageOf(group int) (u usage, err error) {
	processes, err := processesOf(group)
	if err != nil {
		return u, err
	}
	for _, p := range processes {
		stat, err := p.Stat()
		if err != nil {
			return u, err
		}
		io, err := p.IO()
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(stat.CPUTime() * float64(time.Second))
		u.reads += io.ReadBytes / 8192
		u.written += io.WChar
	}
	return u, nil
}

func processesOf(group int) ([]procfs.Proc, error) {
	all, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	var of []procfs.Proc
	for _, p := range all {
		if stat, err := p.Stat(); err == nil && stat.PGRP == group {
			of = append(of, p)
		}
	}
	if len(of) == 0 {
		return nil, errors.New("the process has ended")
	}
	return of, nil
}
