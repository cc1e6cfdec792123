// Command accuracy shows how right the readings are: it delays one layer after the other by a known time, with the real
// agent, PostgreSQL, Longhorn engine and replicas, and compares what is measured of the layer. It also compares with
// what fio, pgbench, bpftrace and the kernel report for the same run.
package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

type options struct {
	agent   string
	turns   int
	seconds time.Duration
	sizes   []time.Duration
	only    *regexp.Regexp
	out     *rows.File
}

// proof is one of the comparisons.
type proof struct {
	name string
	run  func(t *rig.Scope, o options)
}

var proofs = []proof{
	{"replica-network", replicaNetwork},
	{"replica-disk", replicaDisk},
	{"replica-both", replicaBoth},
	{"database-files", databaseFiles},
	{"database-disk", databaseDisk},
	{"database-lock", databaseLock},
	{"database-both", databaseBoth},
	{"database-cpu", databaseCPU},
	{"through", through},
	{"fio", agreeFio},
	{"pgbench", agreePgbench},
	{"bpftrace", agreeBpftrace},
}

func main() {
	app := kingpin.New("accuracy", "Compares readings with known truths, and with other tools' readings.\n\n"+
		"Needs root. Its rows go to build/results/accuracy.jsonl. Examples:\n  accuracy\n  accuracy --only='replica|fio' --turns=15")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("agent", "The agent's program file.").Default("build/bin/plumbline-agent").ExistingFileVar(&o.agent)
	app.Flag("turns", "Turns of each comparison, each without and with the disturbance.").Default("9").IntVar(&o.turns)
	app.Flag("time", "How long fio and pgbench run.").Default("20s").DurationVar(&o.seconds)
	sizes := app.Flag("delay", "Delay to hold things back by; repeatable.").Default("500us", "2ms", "8ms").DurationList()
	app.Flag("only", "Only proofs whose name matches.").Default(".").RegexpVar(&o.only)
	folder := app.Flag("folder", "Where the rows go.").Default("build/results").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	o.sizes = *sizes
	if err := run(o, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "accuracy:", err)
		os.Exit(1)
	}
}

func run(o options, folder string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("measuring and mounting need root")
	}
	if o.out, err = rows.OpenProgram(folder, "accuracy"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.out.Close()) }()
	for _, p := range proofs {
		if !o.only.MatchString(p.name) {
			continue
		}
		began := time.Now()
		failed := make(chan error)
		// A goroutine of its own: a mount namespace goes with it.
		go func() {
			failed <- rig.Run(func(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) },
				func(t *rig.Scope) { p.run(t, o) })
		}()
		const unfinished = "Accuracy: proofs that did not run to their end"
		if e := <-failed; e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", p.name, e))
			o.out.Add(unfinished, p.name, "error", e.Error())
		} else {
			o.out.Drop(unfinished, p.name)
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f s\n", p.name, time.Since(began).Seconds())
	}
	return err
}
