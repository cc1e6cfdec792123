package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
)

// fault is a kind of damage.
type fault struct {
	name, class, what string
	// suspects are the layers one of which must be named; none means that no layer of storage
	// may be, and an alert need not fire.
	suspects []string
	// host says that the alert of the control class is the right one.
	host bool
	// begin does the damage until the returned function is called.
	begin func(context.Context, options) (mend func(), err error)
}

// storage are the layers of storage (rules/decomposition.rules.yaml).
var storage = []string{"queue", "device", "engine", "network", "replica", "disk"}

// faults are in an order in which one's after-effects do not look like the next.
var faults = []fault{
	{name: "doubled-load", class: "longhorn-r1", what: "another pgbench at 40/s", begin: doubledLoad},
	{name: "lock-storm", class: "longhorn-r1", what: "a table the canary needs is locked for 300 ms of each 400", suspects: []string{"wait"}, begin: lockStorm},
	{name: "delayed-replica", class: "longhorn-r3", what: "one of three replicas stands still for half of each 40 ms", suspects: storage, begin: delayedReplica},
	{name: "slow-disk", class: "longhorn-r1", what: "the replica's disk does 30 writes/s", suspects: storage, begin: slowDisk},
	{name: "cpu-hog", class: "local", what: "four busy loops a CPU, each in a session of its own", host: true, begin: hog},
}

func names() (n []string) {
	for _, f := range faults {
		n = append(n, f.name)
	}
	return n
}

// until runs f again and again in a goroutine until the returned function is called.
func until(ctx context.Context, f func(context.Context)) (mend func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			f(ctx)
		}
	})
	return func() {
		cancel()
		running.Wait()
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func socket(o options, class string) string { return filepath.Join(o.dir, "sockets", class) }

func doubledLoad(ctx context.Context, o options) (func(), error) {
	return until(ctx, func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "pgbench", "--no-vacuum", "--rate=40", "--client=4", "--time=600", "-h", socket(o, "longhorn-r1"), "-U", "postgres", "postgres").Run()
		pause(ctx, time.Second)
	}), nil
}

func lockStorm(ctx context.Context, o options) (func(), error) {
	return until(ctx, func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "psql", "-qAt", "-h", socket(o, "longhorn-r1"), "-U", "postgres",
			"-c", "BEGIN", "-c", "LOCK TABLE loadgen_branches", "-c", "SELECT pg_sleep(0.3)", "-c", "COMMIT").Run()
		pause(ctx, 100*time.Millisecond)
	}), nil
}

func delayedReplica(ctx context.Context, o options) (func(), error) {
	pid, err := replica(o, "longhorn-r3")
	if err != nil {
		return nil, err
	}
	mend := until(ctx, func(ctx context.Context) {
		_ = syscall.Kill(pid, syscall.SIGSTOP)
		pause(ctx, 20*time.Millisecond)
		_ = syscall.Kill(pid, syscall.SIGCONT)
		pause(ctx, 20*time.Millisecond)
	})
	return func() {
		mend()
		_ = syscall.Kill(pid, syscall.SIGCONT)
	}, nil
}

// replica returns the process of a class's first replica.
func replica(o options, class string) (int, error) {
	return sandbox.Find(o.dir, "replica", filepath.Join(o.dir, "classes", class, "replicas", "1"))
}

// slowDisk limits the writes of the replica's process on the disk below them, by cgroup.
func slowDisk(_ context.Context, o options) (func(), error) {
	pid, err := replica(o, "longhorn-r1")
	if err != nil {
		return nil, err
	}
	var at syscall.Stat_t
	if err := syscall.Stat(filepath.Join(o.dir, "classes"), &at); err != nil {
		return nil, err
	}
	disk := fmt.Sprintf("%d:%d", at.Dev>>8&0xfff, at.Dev&0xff|at.Dev>>12&0xfff00)
	root, file, limit := "/sys/fs/cgroup", "io.max", disk+" wiops=30"
	if _, err := os.Stat(root + "/blkio"); err == nil {
		root, file, limit = root+"/blkio", "blkio.throttle.write_iops_device", disk+" 30"
	}
	group := filepath.Join(root, "plumbline-regressions")
	if err := os.Mkdir(group, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	mend := func() {
		_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644)
		_ = os.Remove(group)
	}
	if err := os.WriteFile(filepath.Join(group, file), []byte(limit), 0o644); err != nil {
		mend()
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644); err != nil {
		mend()
		return nil, err
	}
	return mend, nil
}

func hog(ctx context.Context, _ options) (func(), error) {
	var all []*exec.Cmd
	mend := func() {
		for _, c := range all {
			_ = c.Process.Kill()
			_ = c.Wait()
		}
	}
	for range 4 * runtime.NumCPU() {
		c := exec.CommandContext(ctx, "sh", "-c", "while :; do :; done")
		// The kernel shares its time out among sessions first (autogroup): the loops of one session
		// would count as a single competitor.
		c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := c.Start(); err != nil {
			mend()
			return nil, err
		}
		all = append(all, c)
	}
	return mend, nil
}

// observe does the damage until an alert fires or the deadline has passed, and returns what fired.
func (f fault) observe(ctx context.Context, o options, w *watch) ([]firing, error) {
	began := time.Now()
	mend, err := f.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer mend()
	return w.firings(ctx, began, o.deadline)
}

// judge tells whether what fired blames the right one, and the cells of a row of the results.
func (f fault) judge(seen []firing) (cells []string, ok bool) {
	after, verdict := "-", "silent"
	var all []string
	ok = len(f.suspects) == 0 && !f.host
	for i, s := range seen {
		if i == 0 {
			after = s.after.Round(time.Second).String()
		}
		all = append(all, s.String())
		switch {
		case f.host:
			ok = ok || s.name == "CanaryHostSlow"
		case len(f.suspects) > 0:
			ok = ok || s.class == f.class && slices.Contains(f.suspects, s.suspect)
		case slices.Contains(storage, s.suspect):
			ok, verdict = false, "blames storage"
		}
	}
	if len(seen) > 0 && ok {
		verdict = "right"
	} else if !ok && verdict == "silent" && len(seen) > 0 {
		verdict = "wrong"
	}
	return []string{"class", f.class, "alert after", after, "what fires", strings.Join(all, "; "), "verdict", verdict}, ok
}
