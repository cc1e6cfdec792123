// Command guest measures, on the kernel that it runs on, how exact the agent and blockio are: everything has a truth
// from somewhere else. It takes the machine for its own, so it runs in a guest of tests/kernels only.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/kernels/job"
	"github.com/plumbline/plumbline/tests/kernels/outcome"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// disk is the guest's own, and work where it is mounted: where servers and replicas of tests put their files.
const (
	disk = "/dev/vda"
	work = "/var/tmp"
)

type options struct {
	agent, target, template, result string
	statements                      int
	replica                         bool
}

func main() {
	app := kingpin.New("guest", "Measures how exact agent and blockio are on this kernel. Overwrites "+disk+": for guests of tests/kernels; see there.")
	var o options
	app.Flag("agent", "The agent's program.").Required().ExistingFileVar(&o.agent)
	app.Flag("target", "The program of tests/nvmetcp/target.").Required().ExistingFileVar(&o.target)
	app.Flag("template", "A data directory of PostgreSQL to start from.").Required().ExistingDirVar(&o.template)
	app.Flag("result", "The file to write the outcome to.").Default("/run/host/outcome.json").StringVar(&o.result)
	app.Flag("statements", "Statements of each kind.").Default("200").IntVar(&o.statements)
	app.Flag("replica", "Run a Longhorn engine with two replicas, too.").Default("true").BoolVar(&o.replica)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if _, err := os.Stat("/run/host/" + job.Booted); err != nil {
		fmt.Fprintln(os.Stderr, "guest: this is no guest of tests/kernels:", err)
		os.Exit(2)
	}
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "guest:", err)
		os.Exit(1)
	}
}

// logf prints progress.
func logf(format string, args ...any) { fmt.Printf("guest: "+format+"\n", args...) }

func run(o options) error {
	began := time.Now()
	var out outcome.Outcome
	if err := rig.Run(logf, func(t *rig.Scope) { measure(t, o, &out) }); err != nil {
		return err
	}
	out.Seconds = time.Since(began).Seconds()
	text, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.result, append(text, '\n'), 0o644)
}

func measure(t *rig.Scope, o options, out *outcome.Outcome) {
	var name unix.Utsname
	t.Check(unix.Uname(&name))
	out.Release = unix.ByteSliceToString(name.Release[:])
	model, _ := os.ReadFile("/sys/kernel/debug/sched/preempt") // not before 5.12
	out.Preempt = strings.TrimSpace(string(model))

	blocks := startBlocks(t, out)
	shown := hold(t, testkit.Root(), filepath.Dir(o.agent), o.template)
	mountWork(t)
	shown.show(t)
	a := startAgent(t, o, out)
	measureDatabase(t, o, a, out)
	if out.NoVolume = !o.replica; o.replica {
		measureReplicas(t, a, out)
	}
	measureNVMe(t, a, o.target, out)
	measureISCSI(t, a, out)
	a.losses(t, out)
	a.stop()
	shown.hide(t)
	unmountWork(t)
	blocks.compare(t, out)
	blocks.measureLVM(t, out)
	blocks.measureRetries(t, out)
}

// mountWork makes a file system on the disk, and mounts it.
func mountWork(t *rig.Scope) {
	for _, command := range []string{"modprobe ext4", "mkfs.ext4 -q " + disk, "mount " + disk + " " + work} {
		t.Check(call(strings.Fields(command)...))
	}
	t.Check(os.Chmod(work, 0o1777))
}

func unmountWork(t *rig.Scope) {
	rig.Eventually(t, rig.DefaultTimeout, func() error { return unix.Unmount(work, 0) })
}

func call(command ...string) error {
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return errors.Join(err, fmt.Errorf("%s: %s", strings.Join(command, " "), out))
	}
	return nil
}
