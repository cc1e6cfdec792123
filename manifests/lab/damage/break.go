package damage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/procfs"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// kind is one way to break a running lab.
type kind struct {
	name string
	// process names what is broken of a class; "" if it is nothing of the lab's.
	process func(c *config.Class) string
	// does describes what is done to a class; PROCESS and CLASS stand for names.
	does  func(c *config.Class) string
	begin func(ctx context.Context, b *breaker) (Mend, error)
}

// needs is a class that can be broken like this.
func (k kind) needs() string {
	if k.name == "network" {
		return "nvme-r3"
	}
	return "longhorn-r3"
}

// breaker is what a kind works on.
type breaker struct {
	lab    *config.Lab
	class  *config.Class
	record record
}

// group is the cgroup of a process whose writes are limited.
const group = "plumbline-break"

// writes is how many writes a second the limited replica may do: the regressions' proof has the same.
const writes = 30

var kinds = []kind{
	{"replica", lastReplica, always("replica PROCESS of class CLASS is stopped for half of each 40 ms, as on a node whose CPU is taken"), func(ctx context.Context, b *breaker) (Mend, error) {
		return Halve(ctx, b.record.PID), nil
	}},
	{"disk", lastWithDisk, diskDoes, func(ctx context.Context, b *breaker) (Mend, error) {
		if linked(b.class) {
			return b.slow(ctx, "slow-disk", diskDelay, "")
		}
		return Throttle(group, b.record.PID, filepath.Join(b.lab.Dir, "classes"), WritesPerSecond(writes))
	}},
	{"cpu", nil, always("four busy loops a CPU, each in a session of its own, take the machine's CPU"), func(_ context.Context, b *breaker) (Mend, error) {
		return Hog(mark(b.lab.Dir)...)
	}},
	{"lock", anyProcess, always("a session of class CLASS locks a table that every transaction needs, for 300 ms of each 400"), func(ctx context.Context, b *breaker) (Mend, error) {
		return LockStorm(ctx, b.class.SocketDirectory(), "pgbench_branches", mark(b.lab.Dir)...), nil
	}},
	{"network", lastLinked, always("all that goes to replica PROCESS of class CLASS takes " + delay(linkDelay) + " longer, as over a bad link"), func(ctx context.Context, b *breaker) (Mend, error) {
		return b.slow(ctx, "slow", linkDelay, "ms")
	}},
	{"stall", bridge, always("process PROCESS, which serves the blocks of class CLASS's volume, is stopped: the volume's device hangs"), func(_ context.Context, b *breaker) (Mend, error) {
		pid := b.record.PID
		return func() error { return alive(syscall.Kill(pid, syscall.SIGCONT)) }, syscall.Kill(pid, syscall.SIGSTOP)
	}},
}

func always(text string) func(*config.Class) string {
	return func(*config.Class) string { return text }
}

func diskDoes(c *config.Class) string {
	if linked(c) {
		return "each write of replica PROCESS of class CLASS takes its disk " + delay(diskDelay) + " longer"
	}
	return fmt.Sprintf("what replica PROCESS of class CLASS writes to its disk is limited to %d writes/s, as on a small cloud disk; the limit is a cgroup's, above the block device", writes)
}

// Kinds names the ways to break a lab.
func Kinds() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

// lastReplica is the class's last replica that the lab runs as a process of its own.
func lastReplica(c *config.Class) string {
	if c.Backend.Engine == "" || len(c.Backend.Replicas) == 0 {
		return ""
	}
	return c.Backend.Replicas[len(c.Backend.Replicas)-1].Name
}

// linked reports whether a class's replicas are behind links, and on disks, that can be made slower.
func linked(c *config.Class) bool {
	_, ok := c.Backend.Files[linkScript]
	return ok && len(c.Backend.Replicas) > 0
}

// lastLinked is the last replica of such a class.
func lastLinked(c *config.Class) string {
	if !linked(c) {
		return ""
	}
	return c.Backend.Replicas[len(c.Backend.Replicas)-1].Name
}

// lastWithDisk is the last replica of a class whose disk can be made slower.
func lastWithDisk(c *config.Class) string { return cmp.Or(lastReplica(c), lastLinked(c)) }

// linkScript is the file of a class by which its links and disks are changed: `slow REPLICA DELAY`, `slow-disk REPLICA
// MILLISECONDS`, and `fast` for all.
const linkScript = "nvme.sh"

// These variables are by how much a link, and each write to a disk, is made slower.
const (
	linkDelay = "LAB_LINK_DELAY"
	diskDelay = "LAB_DISK_DELAY"
)

// delay is a variable's value, as it is written.
func delay(variable string) string { return cmp.Or(os.Getenv(variable), "10ms") }

// milliseconds is a variable's value as a number.
func milliseconds(variable string) (int64, error) {
	d, err := time.ParseDuration(delay(variable))
	if err == nil && (d < time.Millisecond || d != d.Truncate(time.Millisecond)) {
		err = errors.New("not whole milliseconds")
	}
	if err != nil {
		return 0, fmt.Errorf("%s=%s is no delay, such as 10ms: %w", variable, delay(variable), err)
	}
	return d.Milliseconds(), nil
}

// slow has a class's script make something slower by a variable's value.
func (b *breaker) slow(ctx context.Context, what, variable, unit string) (Mend, error) {
	ms, err := milliseconds(variable)
	if err != nil {
		return nil, err
	}
	mend := func() error { return mendLinks(context.WithoutCancel(ctx), b.lab.Dir, b.record) }
	return mend, link(ctx, b.lab.Dir, b.record, what, b.record.Process, strconv.FormatInt(ms, 10)+unit)
}

// link has a class's script change its links or disks, in the namespaces of one of its processes.
func link(ctx context.Context, dir string, r record, args ...string) error {
	script := filepath.Join(dir, "classes", r.Class, linkScript)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--target=%d", r.PID), "--mount", "--net", "sh", script}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", cmd, err, out)
	}
	return nil
}

// mendLinks makes the links and disks of a class as fast as they were, if it has such and its process is there.
func mendLinks(ctx context.Context, dir string, r record) error {
	if _, err := os.Stat(filepath.Join(dir, "classes", r.Class, linkScript)); err != nil {
		return nil
	}
	p, err := supervise.At(dir).Process(ctx, r.Process)
	if err != nil || !p.Runs() || p.PID <= 1 {
		return nil // it recreates its link
	}
	r.PID = p.PID
	return link(ctx, dir, r, "fast")
}

func bridge(c *config.Class) string {
	name := c.Name + "-bridge"
	if _, ok := c.Backend.Processes[name]; ok {
		return name
	}
	return ""
}

func anyProcess(c *config.Class) string { return c.Name + "-postgresql" }

// mark is the environment of what a break starts: it is the lab's, and it is a break's.
func mark(dir string) []string { return []string{sandbox.Environment(dir), "PLUMBLINE_LAB_BREAK=1"} }

// record is what is kept on disk while something is broken, so that it can be healed whatever happens.
type record struct {
	Kind    string `json:"kind"`
	Class   string `json:"class,omitempty"`
	Process string `json:"process,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Breaker is the process that does it, BreakerStarted when it was started, by the kernel's clock.
	Breaker        int    `json:"breaker"`
	BreakerStarted uint64 `json:"breaker_started"`
}

func recordPath(dir string) string { return filepath.Join(dir, "break.json") }

// Broken is a damage that lasts until Heal is called.
type Broken struct {
	// Kind is its name, Class the class it is done to; "" for the whole machine.
	Kind, Class string
	// What describes what is done.
	What string
	mend Mend
	dir  string
}

// Begin breaks a lab. class is a storage class, or "" for the one with the most replicas.
func Begin(ctx context.Context, lab *config.Lab, name, class string) (*Broken, error) {
	i := slices.IndexFunc(kinds, func(k kind) bool { return k.name == name })
	if i < 0 {
		return nil, fmt.Errorf("there is no way %q to break a lab; there are %s", name, strings.Join(Kinds(), ", "))
	}
	k := kinds[i]
	if r, err := readRecord(lab.Dir); err != nil {
		return nil, err
	} else if r != nil && r.lives() {
		return nil, fmt.Errorf("the lab is broken already (%s, by process %d); end that with `plumbline-lab heal`", r.Kind, r.Breaker)
	}
	if _, err := Heal(ctx, lab.Dir); err != nil { // what a killed one left
		return nil, err
	}
	b := &breaker{lab: lab, record: record{Kind: name, Breaker: os.Getpid()}}
	self, err := startTime(os.Getpid())
	if err != nil {
		return nil, err
	}
	b.record.BreakerStarted = self
	if k.process != nil {
		if b.class, err = choose(lab, k, class); err != nil {
			return nil, err
		}
		b.record.Class = b.class.Name
	}
	if k.process != nil && name != "lock" {
		b.record.Process = k.process(b.class)
		p, err := supervise.At(lab.Dir).Process(ctx, b.record.Process)
		if err != nil {
			return nil, err
		}
		if !p.Runs() || p.PID <= 1 {
			return nil, fmt.Errorf("%s does not run; see plumbline-lab status", b.record.Process)
		}
		b.record.PID = p.PID
	}
	if err := writeRecord(lab.Dir, b.record); err != nil {
		return nil, err
	}
	mend, err := k.begin(ctx, b)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("break %s: %w", name, err), os.Remove(recordPath(lab.Dir)))
	}
	what := strings.NewReplacer("PROCESS", b.record.Process, "CLASS", b.record.Class).Replace(k.does(b.class))
	return &Broken{name, b.record.Class, what, mend, lab.Dir}, nil
}

// choose finds the class to break.
func choose(lab *config.Lab, k kind, class string) (*config.Class, error) {
	var best *config.Class
	for _, c := range lab.Classes {
		if class != "" && c.Name != class || k.process(c) == "" {
			continue
		}
		if best == nil || len(c.Backend.Replicas) >= len(best.Backend.Replicas) {
			best = c
		}
	}
	switch {
	case best != nil:
		return best, nil
	case class != "":
		return nil, fmt.Errorf("class %s has nothing that break %s could be done to, or is not in this lab", class, k.name)
	}
	return nil, fmt.Errorf("break %s needs another class: LAB_CLASSES='local %s'", k.name, k.needs())
}

// Heal takes it back.
func (b *Broken) Heal() error {
	return errors.Join(b.mend(), os.Remove(recordPath(b.dir)))
}

// healTimeout is how long a break that runs may take to heal what it did.
const healTimeout = 20 * time.Second

// Heal undoes a break of the lab in dir, whether the break still runs or was killed, and returns what it was; "" if
// nothing is broken.
func Heal(ctx context.Context, dir string) (string, error) {
	r, err := readRecord(dir)
	if err != nil || r == nil {
		return "", err
	}
	if r.Breaker != os.Getpid() && r.lives() {
		if err := alive(syscall.Kill(r.Breaker, syscall.SIGTERM)); err != nil {
			return "", err
		}
		ctx, cancel := context.WithTimeout(ctx, healTimeout)
		defer cancel()
		for r.lives() && ctx.Err() == nil {
			Pause(ctx, 50*time.Millisecond)
		}
		if _, err := os.Stat(recordPath(dir)); errors.Is(err, fs.ErrNotExist) {
			return r.Kind, nil // it has healed it itself
		}
	}
	var problems []error
	if r.Process != "" && (r.Kind == "replica" || r.Kind == "stall") {
		// By its name: another process may have its number by now. One that does not run needs nothing.
		if p, err := supervise.At(dir).Process(ctx, r.Process); err == nil && p.Runs() && p.PID > 1 {
			problems = append(problems, alive(syscall.Kill(p.PID, syscall.SIGCONT)))
		} else if started, err := startTime(r.PID); err == nil && started != 0 && inLab(dir, r.PID) {
			problems = append(problems, alive(syscall.Kill(r.PID, syscall.SIGCONT)))
		}
	}
	if r.Kind == "network" || r.Kind == "disk" {
		problems = append(problems, mendLinks(ctx, dir, *r))
	}
	problems = append(problems, Unthrottle(group, filepath.Join(dir, "classes")), endMarked(dir))
	if err := errors.Join(problems...); err != nil {
		return r.Kind, fmt.Errorf("healing break %s: %w", r.Kind, err)
	}
	return r.Kind, os.Remove(recordPath(dir))
}

// inLab reports whether a process belongs to the lab.
func inLab(dir string, pid int) bool {
	pids, err := sandbox.Processes(dir)
	return err == nil && slices.Contains(pids, pid)
}

// endMarked kills what a break has started.
func endMarked(dir string) error {
	all, err := procfs.AllProcs()
	if err != nil {
		return err
	}
	marks := mark(dir)
	for _, p := range all {
		environment, err := p.Environ()
		if err != nil || slices.ContainsFunc(marks, func(m string) bool { return !slices.Contains(environment, m) }) {
			continue
		}
		if err := alive(syscall.Kill(p.PID, syscall.SIGKILL)); err != nil {
			return err
		}
	}
	return nil
}

func readRecord(dir string) (*record, error) {
	text, err := os.ReadFile(recordPath(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var r record
	if err := json.Unmarshal(text, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", recordPath(dir), err)
	}
	return &r, nil
}

func writeRecord(dir string, r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(recordPath(dir), text, 0o644)
}

// lives reports whether the process that broke it still runs, and is not another one with the same PID.
func (r *record) lives() bool {
	started, err := startTime(r.Breaker)
	return err == nil && started == r.BreakerStarted
}

// startTime is when a process was started, in the kernel's ticks.
func startTime(pid int) (uint64, error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return 0, err
	}
	stat, err := p.Stat()
	if err != nil {
		return 0, err
	}
	if stat.State == "Z" {
		return 0, fs.ErrNotExist
	}
	return stat.Starttime, nil
}
