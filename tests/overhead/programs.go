package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/plumbline/plumbline/tests/agentproc"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

// programCost is what one of the agent's BPF programs took during a run of the load.
type programCost struct {
	collector, program string
	runs, seconds      float64
	transactions       float64
}

// programs runs a workload once with the kernel's run-time statistics on, which cost something
// themselves: so apart from the rounds that are compared.
func (o options) programs(ctx context.Context, workload string, s server) (costs []programCost, err error) {
	const runTime, runs = "plumbline_bpf_run_seconds_total", "plumbline_bpf_runs_total"
	err = rig.Run(logf, func(t *rig.Scope) {
		a, err := agentproc.Start(ctx, o.agent, append(slices.Clone(o.agentFlags), "--bpf.stats")...)
		t.Check(err)
		t.Cleanup(func() { t.Check(a.Stop()) })
		before, err := a.Scrape(ctx)
		t.Check(err)
		r, err := o.load(ctx, workload, s)
		t.Check(err)
		after, err := a.Scrape(ctx)
		t.Check(err)
		for _, m := range after[runs].GetMetric() {
			c := programCost{transactions: r.transactions}
			for _, l := range m.Label {
				switch l.GetName() {
				case "collector":
					c.collector = l.GetValue()
				case "program":
					c.program = l.GetValue()
				}
			}
			labels := []string{"collector", c.collector, "program", c.program}
			c.runs = after.Sum(runs, labels...) - before.Sum(runs, labels...)
			c.seconds = after.Sum(runTime, labels...) - before.Sum(runTime, labels...)
			if c.runs > 0 {
				costs = append(costs, c)
			}
		}
	})
	slices.SortFunc(costs, func(a, b programCost) int {
		return cmp.Or(cmp.Compare(b.seconds, a.seconds), cmp.Compare(a.program, b.program))
	})
	return costs, err
}

// reportPrograms prints and records what each program took.
func reportPrograms(out io.Writer, file *rows.File, workload string, costs []programCost) {
	for _, c := range costs {
		cells := []string{
			"ns per run", fmt.Sprintf("%.0f", 1e9*c.seconds/c.runs),
			"runs per transaction", fmt.Sprintf("%.2f", c.runs/c.transactions),
			"us per transaction", fmt.Sprintf("%.2f", 1e6*c.seconds/c.transactions),
		}
		file.Add("Overhead: each of the agent's BPF programs", fmt.Sprintf("%s: %s of collector %s", workload, c.program, c.collector), cells...)
		fmt.Fprintf(out, "%s, %s: %s\n", workload, c.program, strings.Join(cells, " "))
	}
}
