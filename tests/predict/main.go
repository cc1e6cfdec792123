// Command predict shows how right predictions are: it moves a real PostgreSQL between stores whose latencies differ in
// known ways, measures on all of them, predicts each move from what was measured where it was and of the class alone,
// and sets the prediction beside what was measured after it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

// options is the command line.
type options struct {
	agent, loadgen string
	rounds         int
	window         time.Duration
	stores, kinds  *regexp.Regexp
	save, again    string
	live           string
	windows        int
	probes         map[string]string
	pause          time.Duration
}

func main() {
	app := kingpin.New("predict", "Moves a PostgreSQL between stores, and compares what was predicted with what was measured.\n\n"+
		"Needs root. Its rows go to build/results/predict.jsonl. Examples:\n  predict\n  predict --rounds=3 --stores='2 ms|8 ms' --save=build/predict\n"+
		"  predict --again=build/predict   # predicts again from what was measured, and writes no rows\n"+
		"  predict --live=http://127.0.0.1:29090 --window=1m --windows=12   # the servers of a lab (make lab-up) that ran so long, from class to class")
	app.HelpFlag.Short('h')
	o := options{probes: map[string]string{}}
	app.Flag("agent", "The agent's program file.").Default("build/bin/plumbline-agent").StringVar(&o.agent)
	app.Flag("loadgen", "loadgen's program file.").Default("build/bin/loadgen").StringVar(&o.loadgen)
	app.Flag("rounds", "Rounds of all stores and loads.").Default("8").IntVar(&o.rounds)
	app.Flag("window", "Length of a window: a round has one for each load on each store.").Default("3s").DurationVar(&o.window)
	app.Flag("stores", "Only stores whose name matches.").Default(".").RegexpVar(&o.stores)
	app.Flag("kinds", "Only loads whose name matches.").Default(".").RegexpVar(&o.kinds)
	app.Flag("save", "Folder to keep what was measured in.").StringVar(&o.save)
	app.Flag("again", "Such a folder: predict from it, and measure nothing.").StringVar(&o.again)
	app.Flag("live", "A running lab's Prometheus: predict from what it has of its servers, and start none.").StringVar(&o.live)
	app.Flag("windows", "How many windows, up to now; with --live.").Default("12").IntVar(&o.windows)
	app.Flag("probe", "With --live: a class and a folder on it, CLASS=DIRECTORY, to measure with loadgen probe; repeatable.").StringMapVar(&o.probes)
	app.Flag("pause", "Mean pause of the probes, so that their rate is the lab's.").Default("45ms").DurationVar(&o.pause)
	folder := app.Flag("folder", "Where the rows go.").Default("build/results").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := run(o, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "predict:", err)
		os.Exit(1)
	}
}

func run(o options, folder string) (err error) {
	if o.again != "" {
		m, err := load(o.again)
		if err != nil {
			return err
		}
		t, err := predictAll(m)
		t.print(os.Stdout)
		return err
	}
	if o.live != "" {
		return runLive(o, folder)
	}
	if os.Geteuid() != 0 {
		return errors.New("measuring and mounting need root")
	}
	out, err := rows.OpenProgram(folder, "predict")
	if err != nil {
		return err
	}
	m, err := measureAlone(o, func(format string, args ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", args...) })
	if err != nil {
		return err
	}
	if o.save != "" {
		if err := m.save(o.save); err != nil {
			return err
		}
	}
	t, err := predictAll(m)
	if err != nil {
		return err
	}
	t.print(os.Stdout)
	t.rows(out, "Predictions of a move to other storage", "Predictions, move by move")
	return out.Close()
}

// runLive writes the rows of a lab.
func runLive(o options, folder string) error {
	out, err := rows.OpenProgram(folder, "predict")
	if err != nil {
		return err
	}
	t, err := live(context.Background(), o)
	if err != nil {
		return err
	}
	t.print(os.Stdout)
	t.rows(out, "Predictions in a lab, by a live Prometheus", "Predictions in a lab, move by move")
	return out.Close()
}

// measureAlone measures in a goroutine of its own: a mount namespace goes with it.
func measureAlone(o options, log func(format string, args ...any)) (m *measured, err error) {
	failed := make(chan error)
	go func() { failed <- rig.Run(log, func(t *rig.Scope) { m = measure(t, o) }) }()
	err = <-failed
	return m, err
}
