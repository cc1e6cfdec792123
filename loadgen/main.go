// Command loadgen puts a known load on a database and reports, event by event, how it fared.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/loadgen/result"
)

// command is what a chosen sub-command does once the command line is read.
type command func(ctx context.Context, log *slog.Logger) error

// program is the command line and the sub-command chosen on it.
type program struct {
	*exporterkit.App
	chosen command
}

// examplesTemplate shows a sub-command's examples below its flags.
const examplesTemplate = `{{if .Context.SelectedCommand}}{{with .Context.SelectedCommand.HelpLong}}
Examples:
{{.}}
{{end}}{{end}}`

func main() {
	p := newProgram()
	log := p.Parse(os.Args[1:])
	slog.SetDefault(log) // for logs where nobody hands one on
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal kills what does not end
	err := p.chosen(ctx, log)
	var code exitCode
	if errors.As(err, &code) {
		os.Exit(int(code))
	}
	if err != nil {
		log.Error("loadgen ends", "err", err)
		os.Exit(1)
	}
}

func newProgram() *program {
	p := &program{App: exporterkit.New("loadgen",
		"Puts a known load on a database and exports its response times.", "127.0.0.1:9700",
		"loadgen canary --database=shop --storageclass=longhorn-r3 --rate=5 --dsn='host=127.0.0.1 dbname=shop'",
		"loadgen canary --help")}
	p.Flags.UsageTemplate(kingpin.DefaultUsageTemplate + examplesTemplate)
	p.addCanary()
	p.addPgbench()
	p.addSysbench()
	p.addFio()
	p.addK6()
	p.addMerge()
	p.addMatrix()
	p.addCompare()
	p.addExport()
	p.addBaseline()
	p.addSoak()
	p.addReport()
	p.addProbe()
	p.addPredict()
	return p
}

// add makes a sub-command; run is called when it is the chosen one. examples are whole command
// lines for its --help.
func (p *program) add(name, help string, run command, examples ...string) *kingpin.CmdClause {
	c := p.Flags.Command(name, help).HelpLong("  " + strings.Join(examples, "\n  "))
	c.Action(func(*kingpin.ParseContext) error {
		p.chosen = run
		return nil
	})
	return c
}

// load is what the sub-commands that make one load have in common.
type load struct {
	labels  metrics.Labels
	options metrics.Options
	warmup  time.Duration
	once    time.Duration
	json    bool
	// generator is which of several generators of the load this one is.
	generator result.Generator
}

// addLoad adds the common flags to a sub-command.
func addLoad(c *kingpin.CmdClause, tool string) *load {
	l := &load{labels: metrics.Labels{Tool: tool}}
	c.Flag("database", "What this load calls its database, the value of the label database.").StringVar(&l.labels.Database)
	c.Flag("storageclass", "Storage class the server's data is on, the value of the label storageclass.").StringVar(&l.labels.StorageClass)
	c.Flag("warmup", "How long the load counts as warming up after each start.").Default("30s").DurationVar(&l.warmup)
	c.Flag("penalty", "Response time counted for a transaction that failed or was skipped, if it did not take longer. One that waits for a connection when the load ends counts with the time it waited.").
		Default("10s").DurationVar(&l.options.Penalty)
	c.Flag("once", "Run once for this long after the warm-up, print the result and exit, instead of running for ever and exporting metrics. If it is stopped before, it prints what there is, with a note, and its exit code is 1.").DurationVar(&l.once)
	c.Flag("json", "With --once: print the result as JSON.").BoolVar(&l.json)
	return l
}

// dsnFlag adds the flag of a connection string. What comes out of a file, such as a Secret's key, often ends with a line
// end, which is none of it.
func dsnFlag(c *kingpin.CmdClause, help string, into *string) {
	c.Flag("dsn", help).Envar("LOADGEN_DSN").SetValue(trimmed{into})
}

// trimmed is a flag's value without blanks and line ends around it.
type trimmed struct{ into *string }

func (t trimmed) Set(text string) error { *t.into = strings.TrimSpace(text); return nil }
func (t trimmed) String() string        { return *t.into }

// giveUp is how long a server or a tool may take to be there if somebody waits for the result.
func (l *load) giveUp() time.Duration {
	if l.once > 0 {
		return 30 * time.Second
	}
	return 0
}

// run exports the metrics while work goes on, or does it once and prints the result, which finish may add to.
func (p *program) run(ctx context.Context, log *slog.Logger, l *load, load *metrics.Load, work func(context.Context), finish func(*result.Result)) error {
	if l.once > 0 {
		return p.runOnce(ctx, l, load, work, finish)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- p.Serve(ctx, log)
		stop()
	}()
	work(ctx)
	stop()
	return <-failed
}

// runTool makes a tool's tables, unless initialize is nil, and keeps the tool running.
func (p *program) runTool(ctx context.Context, log *slog.Logger, l *load, s *adapter.Supervisor, initialize func(context.Context) error, once func(context.Context) adapter.Ended) error {
	var failed error
	err := p.run(ctx, log, l, s.Load, func(ctx context.Context) {
		if initialize != nil {
			s.Load.SetPhase(metrics.Init)
			if failed = s.Retry(ctx, "making the tables", initialize); failed != nil {
				return
			}
			s.Load.SetPhase(metrics.Stopped)
		}
		log.Info("load starts", "tool", l.labels.Tool, "profile", l.labels.Profile, "rate", l.options.Target)
		failed = s.Run(ctx, once)
	}, func(*result.Result) {})
	return firstFailure(failed, err)
}

// firstFailure returns the load's own error, unless it was only stopped, or else err.
func firstFailure(failed, err error) error {
	if failed != nil && !errors.Is(failed, context.Canceled) {
		return failed
	}
	return err
}

// runOnce does the work once and prints the result. It fails if it was stopped before its time, or if the result is not
// one of the server.
func (p *program) runOnce(ctx context.Context, l *load, load *metrics.Load, work func(context.Context), finish func(*result.Result)) error {
	r, err := result.Measure(ctx, load, l.options.Target, result.Warmup{Least: l.warmup}, l.once, work)
	if err != nil {
		return err
	}
	finish(&r)
	short := errors.Join(r.Short(l.once), r.Unsound())
	write := r.WriteText
	switch {
	case l.json && l.generator.Of > 1:
		write = r.Of(l.generator).WriteJSON
	case l.json:
		write = r.WriteJSON
	}
	return errors.Join(short, write(os.Stdout))
}
