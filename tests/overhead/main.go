// Command overhead measures what observing PostgreSQL costs it: the same load runs without
// any tracing, with the agent, with blockio, with both, and with bpftrace scripts that measure
// the same, in turns and on the same data, and throughput, latency and CPU time per transaction
// are compared round by round.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/pgserver"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

type options struct {
	dsn              string
	scale            int
	agent, bpftrace  string
	agentFlags       []string
	pgbench          string
	clients, rounds  int
	seconds          time.Duration
	workloads, modes []string
	// command is the command line, for the report; folder is where its rows go.
	command, folder string
}

func main() {
	app := kingpin.New("overhead", "Compares a PostgreSQL server's throughput and latency without tracing, with Plumbline's programs and with bpftrace.\n\n"+
		"Needs root. Examples:\n  overhead --agent=build/bin/plumbline-agent --workload=select --workload=tpcb\n"+
		"  overhead --dsn='host=/run/lab user=postgres dbname=bench' --workload=tpcb --rounds=20")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("dsn", "A server of this machine to measure, as URL or key=value, with the tables of pgbench -i in its database; "+
		"the user may read files of the server. If empty, a server of its own is started and filled.").StringVar(&o.dsn)
	app.Flag("scale", "Scale of its own server's tables.").Default("10").IntVar(&o.scale)
	app.Flag("agent", "The agent's program file.").Default("build/bin/plumbline-agent").StringVar(&o.agent)
	app.Flag("agent-flag", "Flag for the agent, such as --agent-flag=--no-collector.replica; repeatable.").StringsVar(&o.agentFlags)
	app.Flag("bpftrace", "bpftrace's program file.").Default("bpftrace").StringVar(&o.bpftrace)
	app.Flag("pgbench", "pgbench's program file; from PATH or Debian's folders if empty.").StringVar(&o.pgbench)
	app.Flag("clients", "Connections of the load.").Default("2").IntVar(&o.clients)
	app.Flag("rounds", "Rounds; each runs every mode once, in random order.").Default("10").IntVar(&o.rounds)
	app.Flag("time", "Length of one run.").Default("5s").DurationVar(&o.seconds)
	app.Flag("workload", "select (cached, prepared; the worst case) or tpcb; repeatable.").Default("select", "tpcb").EnumsVar(&o.workloads, "select", "tpcb")
	app.Flag("mode", "One of "+strings.Join(modes, ", ")+" (statements: the agent with --collector.trace; all: agent and blockio); repeatable.").Default(modes...).EnumsVar(&o.modes, modes...)
	app.Flag("folder", "Where the rows of results go.").Default("build/results").StringVar(&o.folder)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	o.command = rows.Command("overhead")

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("tracing needs root")
	}
	if o.pgbench == "" {
		if o.pgbench, err = pgserver.Tool("pgbench"); err != nil {
			return err
		}
	}
	if o.dsn == "" {
		own, err := o.ownServer(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, own.Stop()) }()
		o.dsn = own.URL
	}
	s, err := o.server(ctx)
	if err != nil {
		return err
	}
	others, err := observers()
	if err != nil {
		return err
	}
	file, err := rows.Open(o.folder, "overhead", o.command)
	if err != nil {
		return err
	}
	results := map[string]map[string][]result{}
	for _, workload := range o.workloads {
		if results[workload], err = o.compare(ctx, workload, s); err != nil {
			return err
		}
		if !slices.Contains(o.modes, "agent") {
			continue
		}
		costs, err := o.programs(ctx, workload, s)
		if err != nil {
			return err
		}
		reportPrograms(out, file, workload, costs)
	}
	return errors.Join(o.report(out, s, others, results), o.record(file, s, others, results))
}

// compare runs a workload in every mode, round by round.
func (o options) compare(ctx context.Context, workload string, s server) (map[string][]result, error) {
	results := map[string][]result{}
	for round := range o.rounds {
		order := slices.Clone(o.modes)
		rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, mode := range order {
			r, err := o.measure(ctx, mode, workload, s)
			if err != nil {
				return nil, fmt.Errorf("%s with %s, round %d: %w", workload, mode, round+1, err)
			}
			results[mode] = append(results[mode], r)
			fmt.Fprintf(os.Stderr, "round %d/%d %s %s: %.0f tps, %.1f us of CPU per transaction, %.1f us in the fastest tenth, 99 %% within %.1f us\n",
				round+1, o.rounds, workload, mode, r.tps, r.cpu*1e6, r.fast*1e6, r.p99*1e6)
		}
	}
	return results, nil
}

// logf prints progress.
func logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

// measure runs the load once with a tracer attached, and returns what it gave.
func (o options) measure(ctx context.Context, mode, workload string, s server) (result, error) {
	var r result
	err := rig.Run(logf, func(t *rig.Scope) {
		o.observe(ctx, t, mode, s)
		var err error
		r, err = o.load(ctx, workload, s)
		t.Check(err)
	})
	return r, err
}
