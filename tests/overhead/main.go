// Command overhead measures what observing PostgreSQL costs it: the same load runs without
// any tracing, with the agent, and with bpftrace scripts that measure the same, in turns and
// on the same data, and throughput and CPU
// time per transaction are compared round by round.
package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

type options struct {
	host, database, user string
	port                 int
	agent, bpftrace      string
	agentFlags           []string
	pgbench              string
	clients, rounds      int
	seconds              time.Duration
	workloads, modes     []string
}

func main() {
	app := kingpin.New("overhead", "Compares a PostgreSQL server's throughput without tracing, with the agent and with bpftrace.\n\n"+
		"The server must hold a pgbench data set (pgbench -i). Example:\n  overhead --port=5432 --agent=build/bin/agent --rounds=10 --workload=select --workload=tpcb")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("host", "Host or folder of the local socket.").Default("127.0.0.1").StringVar(&o.host)
	app.Flag("port", "Port of the server.").Default("5432").IntVar(&o.port)
	app.Flag("user", "User to connect as.").Default("postgres").StringVar(&o.user)
	app.Flag("database", "Database with the pgbench tables.").Default("postgres").StringVar(&o.database)
	app.Flag("agent", "The agent's program file.").Default("build/bin/agent").StringVar(&o.agent)
	app.Flag("agent-flag", "Flag for the agent, such as --agent-flag=--no-collector.replica; repeatable.").StringsVar(&o.agentFlags)
	app.Flag("bpftrace", "bpftrace's program file.").Default("bpftrace").StringVar(&o.bpftrace)
	app.Flag("pgbench", "pgbench's program file.").Default("pgbench").StringVar(&o.pgbench)
	app.Flag("clients", "Connections of the load.").Default("2").IntVar(&o.clients)
	app.Flag("rounds", "Rounds; each runs every mode once, in random order.").Default("10").IntVar(&o.rounds)
	app.Flag("time", "Length of one run.").Default("5s").DurationVar(&o.seconds)
	app.Flag("workload", "select (cached, prepared; the worst case) or tpcb; repeatable.").Default("select").EnumsVar(&o.workloads, "select", "tpcb")
	app.Flag("mode", "none, agent or bpftrace; repeatable.").Default("none", "agent", "bpftrace").EnumsVar(&o.modes, "none", "agent", "bpftrace")
	kingpin.MustParse(app.Parse(os.Args[1:]))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "overhead:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if os.Geteuid() != 0 {
		return errors.New("tracing needs root")
	}
	postmaster, err := o.postmaster(ctx)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "workload\tmode\ttps\tratio to none (middle half)\tCPU per transaction\tnone's CPU to it (middle half)\trounds")
	for _, workload := range o.workloads {
		results := map[string][]result{}
		for round := range o.rounds {
			order := append([]string(nil), o.modes...)
			rand.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
			for _, mode := range order {
				r, err := o.measure(ctx, mode, workload, postmaster)
				if err != nil {
					return fmt.Errorf("%s with %s, round %d: %w", workload, mode, round+1, err)
				}
				results[mode] = append(results[mode], r)
				fmt.Fprintf(os.Stderr, "round %d/%d %s %s: %.0f tps, %.1f us of CPU per transaction\n",
					round+1, o.rounds, workload, mode, r.tps, r.cpu*1e6)
			}
		}
		for _, mode := range o.modes {
			tps, cpu := columns(results[mode])
			noneTPS, noneCPU := columns(results["none"])
			fmt.Fprintf(w, "%s\t%s\t%.0f\t%s\t%.1f us\t%s\t%d\n", workload, mode,
				quantile(tps, 0.5), spread(ratiosOf(tps, noneTPS)),
				quantile(cpu, 0.5)*1e6, spread(ratiosOf(noneCPU, cpu)), len(tps))
		}
	}
	return nil
}

func columns(results []result) (tps, cpu []float64) {
	for _, r := range results {
		tps, cpu = append(tps, r.tps), append(cpu, r.cpu)
	}
	return tps, cpu
}

// spread shows the median and the middle half of ratios.
func spread(ratios []float64) string {
	if len(ratios) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", quantile(ratios, 0.5), quantile(ratios, 0.25), quantile(ratios, 0.75))
}

// measure runs the load once with a tracer attached, and returns what it gave.
func (o options) measure(ctx context.Context, mode, workload string, postmaster int) (result, error) {
	t, err := o.start(ctx, mode)
	if err != nil {
		return result{}, err
	}
	r, err := o.load(ctx, workload, postmaster)
	return r, errors.Join(err, t.stop())
}
