package main

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/rules/layers"
)

// fault is a kind of damage.
type fault struct {
	name, class, what string
	// suspects are the layers one of which must be named; none means that no layer of storage
	// may be, and an alert need not fire.
	suspects []string
	// host means that the alert of the control class is the right one.
	host bool
	// begin does the damage until the returned function is called.
	begin func(context.Context, options) (damage.Mend, error)
}

// storage are the layers of storage.
var storage = layers.Names(layers.IsStorage)

// faults are in an order in which one's after-effects do not look like the next.
var faults = []fault{
	{name: "doubled-load", class: "longhorn-r1", what: "another pgbench at 40/s", begin: doubledLoad},
	{name: "lock-storm", class: "longhorn-r1", what: "a table the canary needs is locked for 300 ms of each 400", suspects: []string{layers.Wait}, begin: lockStorm},
	{name: "delayed-replica", class: "longhorn-r3", what: "one of three replicas is stopped for half of each 40 ms", suspects: storage, begin: delayedReplica},
	{name: "slow-disk", class: "longhorn-r1", what: "the replica's disk does 30 writes/s", suspects: storage, begin: slowDisk},
	{name: "cpu-hog", class: "local", what: "four busy loops a CPU, each in a session of its own", host: true, begin: hog},
}

func names() (n []string) {
	for _, f := range faults {
		n = append(n, f.name)
	}
	return n
}

func socket(o options, class string) string { return filepath.Join(o.dir, "sockets", class) }

func doubledLoad(ctx context.Context, o options) (damage.Mend, error) {
	return damage.Repeat(ctx, func(ctx context.Context) {
		_ = exec.CommandContext(ctx, "pgbench", "--no-vacuum", "--rate=40", "--client=4", "--time=600", "-h", socket(o, "longhorn-r1"), "-U", "postgres", "postgres").Run()
		damage.Pause(ctx, time.Second)
	}), nil
}

func lockStorm(ctx context.Context, o options) (damage.Mend, error) {
	return damage.LockStorm(ctx, socket(o, "longhorn-r1"), "loadgen_branches"), nil
}

func delayedReplica(ctx context.Context, o options) (damage.Mend, error) {
	pid, err := replica(o, "longhorn-r3")
	if err != nil {
		return nil, err
	}
	return damage.Halve(ctx, pid), nil
}

// replica returns the process of a class's first replica.
func replica(o options, class string) (int, error) {
	return sandbox.Find(o.dir, "replica", filepath.Join(o.dir, "classes", class, "replicas", "1"))
}

// slowDisk limits the writes of the replica's process on the disk below them, by cgroup.
func slowDisk(_ context.Context, o options) (damage.Mend, error) {
	pid, err := replica(o, "longhorn-r1")
	if err != nil {
		return nil, err
	}
	return damage.Throttle("plumbline-regressions", pid, filepath.Join(o.dir, "classes"), damage.WritesPerSecond(30))
}

func hog(context.Context, options) (damage.Mend, error) { return damage.Hog() }

// observe does the damage until an alert fires or the deadline has passed, and returns what fired.
func (f fault) observe(ctx context.Context, o options, w *watch) (seen []firing, err error) {
	began := time.Now()
	mend, err := f.begin(ctx, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, mend()) }()
	return w.firings(ctx, began, o.deadline)
}

// judge reports whether the alerts that fired blame the right suspect, and returns the cells of a row of the results.
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
