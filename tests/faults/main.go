// Command faults breaks the lab in every way it can, one at a time, and awaits through
// Prometheus that each fault is seen and its end, too; and it counts what was lost meanwhile:
// acknowledged transactions, statements that the agent did not count, scrapes.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
)

type options struct {
	program, dir, classes string
	portBase              int
	only                  *regexp.Regexp
	keep, clock, stalls   bool
	outage, deadline      time.Duration
	folder                string
}

func main() {
	app := kingpin.New("faults", "Breaks a lab of its own, fault by fault, and reports what was seen and what was lost.\n\n"+
		"Needs root. Its rows go to build/results/faults.jsonl. Examples:\n  faults\n  faults --only='agent|replica' --keep\n  faults --only=outage --outage=10m\n  faults --stalls --only=engine")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("lab", "The lab's program file.").Default("build/bin/plumbline-lab").ExistingFileVar(&o.program)
	app.Flag("directory", "The lab's state; if a lab is there already, it is used and left.").Envar("LAB_DIR").Default("/var/lib/pl-faults").StringVar(&o.dir)
	app.Flag("port-base", "First of the lab's ports.").Envar("LAB_PORT_BASE").Default("31300").IntVar(&o.portBase)
	app.Flag("classes", "The lab's storage classes; local and longhorn-r3 are needed.").Envar("LAB_CLASSES").Default("local longhorn-r3").StringVar(&o.classes)
	app.Flag("only", "Only faults whose name matches.").Default(".").RegexpVar(&o.only)
	app.Flag("keep", "Leave the lab running at the end.").BoolVar(&o.keep)
	app.Flag("outage", "How long Prometheus is down in the fault outage.").Default("2m").DurationVar(&o.outage)
	app.Flag("set-clock", "Also step the machine's clock by 40 s and back; not where others rely on it.").BoolVar(&o.clock)
	app.Flag("stalls", "Instead, make things stall, and report what detects it, how soon, and what it names; about 15 minutes.").BoolVar(&o.stalls)
	app.Flag("deadline", "How long a condition may take to be seen.").Default("2m").DurationVar(&o.deadline)
	app.Flag("folder", "Where the rows go.").Default("build/results").StringVar(&o.folder)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "faults:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	name := "faults"
	if o.stalls {
		name = "stalls"
	}
	out, err := rows.Open(o.folder, name, rows.Command("faults"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	l, err := startLab(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.stop()) }()
	if o.stalls {
		for _, s := range l.stalls() {
			if o.only.MatchString(s.name) && ctx.Err() == nil {
				err = errors.Join(err, l.tryStall(s, out))
			}
		}
		return err
	}
	for _, f := range l.faults() {
		if o.only.MatchString(f.name) && ctx.Err() == nil {
			err = errors.Join(err, l.try(f, out))
		}
	}
	if o.only.String() == "." {
		for _, n := range notTried {
			if n.what == clockStep && o.clock {
				continue
			}
			out.Add(section, n.what, "expected", "not tried here", "seen", n.why)
		}
	}
	return err
}

const clockStep = "step of the clock by 40 s, and back after 15 s"

// notTried are the faults that this machine does not allow, or that others of our tests make.
var notTried = []struct{ what, why string }{
	{clockStep, "only with --set-clock, as it is the whole machine's. The agent and blockio take times from the monotonic clock only"},
	{"API server away", "by `go test ./exporters/agent/volume ./exporters/longhorn/collector ./exporters/openebs/collector`, on a real API server"},
	{"hostile engine, replica and instance manager", "by `go test ./exporters/longhorn/collector` and, on the wire, `go test -run TestReplicaGarbage ./exporters/agent/collector`"},
	{"BPF maps full", "by `go test -run 'MapsFull|VolumeFlood' ./exporters/agent/collector`: what does not fit is counted, the rest is exact"},
}

// absolute makes a path of the command line fit for other folders.
func absolute(path string) string {
	if a, err := filepath.Abs(path); err == nil {
		return a
	}
	return path
}
