// Command regressions does known damage to a running lab and records which alerts fire, which layer they suspect, and
// how soon: what slows storage must be blamed on it, and what does not must not.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/tests/promapi"
	"github.com/plumbline/plumbline/tests/results/rows"
)

type options struct {
	dir, prometheus, loadgen, results string
	pin, deadline                     time.Duration
	faults                            []string
}

func main() {
	app := kingpin.New("regressions", "Damages a running lab in known ways and reports which alerts fire, with which suspect, and how soon.\n\n"+
		"The lab needs the classes local, longhorn-r1 and longhorn-r3 and a canary. It takes two hours or so: an alert must have ended before the next damage to its class. Example, as root:\n"+
		"  make lab-up\n  regressions --fault=cpu-hog --fault=lock-storm")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("lab-dir", "The lab's folder.").Default("/var/lib/plumbline-lab").Envar("LAB_DIR").StringVar(&o.dir)
	app.Flag("prometheus", "The lab's Prometheus.").Default("http://127.0.0.1:29090").StringVar(&o.prometheus)
	app.Flag("loadgen", "The program loadgen.").Default("build/bin/loadgen").StringVar(&o.loadgen)
	app.Flag("results", "Where the rows of results go.").Default("build/results").StringVar(&o.results)
	app.Flag("pin", "Pin the baseline over this long first; 0 leaves the one there is.").Default("5m").DurationVar(&o.pin)
	app.Flag("deadline", "Wait this long for an alert, and for calm after it.").Default("15m").DurationVar(&o.deadline)
	app.Flag("fault", "Only this one; repeatable: "+strings.Join(names(), ", ")+".").EnumsVar(&o.faults, names()...)
	kingpin.MustParse(app.Parse(os.Args[1:]))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "regressions:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("damaging the lab needs root")
	}
	server, err := promapi.At(o.prometheus)
	if err != nil {
		return err
	}
	file, err := rows.OpenProgram(o.results, "regressions")
	if err != nil {
		return err
	}
	w := &watch{server}
	if o.pin > 0 {
		if err := pin(ctx, o, w); err != nil {
			return err
		}
	}
	wrong := 0
	for _, f := range faults {
		if len(o.faults) > 0 && !slices.Contains(o.faults, f.name) {
			continue
		}
		slog.Info("waiting for calm", "before", f.name)
		if err := w.calm(ctx, o.deadline, f.class); err != nil {
			return errors.Join(fmt.Errorf("before %s: %w", f.name, err), file.Close())
		}
		seen, err := f.observe(ctx, o, w)
		if err != nil {
			return errors.Join(fmt.Errorf("%s: %w", f.name, err), file.Close())
		}
		cells, ok := f.judge(seen)
		if !ok {
			wrong++
		}
		file.Add("Live regressions in the lab", f.name+": "+f.what, cells...)
		fmt.Fprintf(out, "%s: %s\n  %s\n", f.name, f.what, strings.Join(cells, " | "))
	}
	if err := file.Close(); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("%d kinds of damage were not reported right", wrong)
	}
	return nil
}

// pin measures the classes with the lab as it is and has Prometheus read the result.
func pin(ctx context.Context, o options, w *watch) error {
	var targets strings.Builder
	targets.WriteString("targets:\n")
	for _, class := range []string{"local", "longhorn-r1", "longhorn-r3"} {
		fmt.Fprintf(&targets, "  - {storageclass: %s, local: %t, dsn: host=%s user=postgres dbname=postgres}\n",
			class, class == "local", filepath.Join(o.dir, "sockets", class))
	}
	file := filepath.Join(o.dir, "regressions-targets.yaml")
	if err := os.WriteFile(file, []byte(targets.String()), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.Remove(file) }()
	rules := filepath.Join(o.dir, "baseline.rules.yaml")
	rate, err := w.Number(ctx, `max(loadgen_target_rate{tool="canary"})`)
	if err != nil {
		return fmt.Errorf("the lab's canary: %w", err)
	}
	slog.Info("pinning the baseline", "for", o.pin, "file", rules)
	command := exec.CommandContext(ctx, o.loadgen, "baseline", "--targets="+file, "--output="+rules, "--force",
		fmt.Sprint("--rate=", rate), "--duration="+o.pin.String(), "--max-duration="+(2*o.pin).String(), "--web.listen-address=127.0.0.1:0")
	command.Stderr = os.Stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("loadgen baseline: %w", err)
	}
	if err := os.Chmod(rules, 0o644); err != nil {
		return err
	}
	pid, err := sandbox.Find(o.dir, filepath.Join(o.dir, "bin", "prometheus"))
	if err != nil {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGHUP); err != nil { // it reads its rules again
		return err
	}
	return w.Await(ctx, o.deadline, "count(loadgen:pinned_seconds:p95) >= 3")
}
