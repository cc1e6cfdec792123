package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/results/rows"
)

// agentProgram is a BPF program that every agent loads.
const agentProgram = "task_switched"

// observers counts the agents that run on this machine already: they follow the server too,
// so that "none" would not be none.
func observers() (int, error) {
	n := 0
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return n, nil // the last one
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue // unloaded meanwhile
		}
		info, err := p.Info()
		p.Close()
		if err != nil {
			return n, fmt.Errorf("BPF program %d: %w", id, err)
		}
		if info.Name == agentProgram {
			n++
		}
	}
}

// record adds the results to build/results, for the page of all results.
func (o options) record(file *rows.File, s server, others int, results map[string]map[string][]result) error {
	for _, workload := range o.workloads {
		none := columns(results[workload]["none"])
		for _, mode := range o.modes {
			c := columns(results[workload][mode])
			file.Add("Overhead: a PostgreSQL server with tracing and without", fmt.Sprintf("%s, %s", workload, mode),
				"PostgreSQL", s.version, "TPS", fmt.Sprintf("%.0f", rows.Quantile(c.tps, 0.5)), "ratio to none (middle half)", spread(ratiosOf(c.tps, none.tps)),
				"fastest tenth", fmt.Sprintf("%.1f us", rows.Quantile(c.fast, 0.5)*1e6), "none's to it", spread(ratiosOf(none.fast, c.fast)),
				"p99", fmt.Sprintf("%.1f us", rows.Quantile(c.p99, 0.5)*1e6), "none's to it, of p99", spread(ratiosOf(none.p99, c.p99)),
				"CPU per transaction", fmt.Sprintf("%.1f us", rows.Quantile(c.cpu, 0.5)*1e6), "none's to it, of CPU", spread(ratiosOf(none.cpu, c.cpu)),
				"rounds", fmt.Sprint(len(c.tps)), "other agents", fmt.Sprint(others))
		}
	}
	return file.Close()
}

// report prints the results as Markdown, with all that is needed to judge and repeat them.
func (o options) report(out io.Writer, s server, others int, results map[string]map[string][]result) error {
	var kernel unix.Utsname
	if err := unix.Uname(&kernel); err != nil {
		return err
	}
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, Linux %s, %d CPUs, PostgreSQL %s. Load average at the end %s; agents that ran besides: %d.\n\n    %s\n\n",
		time.Now().UTC().Format(time.DateOnly), unix.ByteSliceToString(kernel.Release[:]), runtime.NumCPU(), s.version,
		strings.Join(strings.Fields(string(load))[:3], " "), others, o.command)
	fmt.Fprintln(out, "Medians; ratios are those of runs of one round, with the middle half in parentheses. The fastest tenth of a run's transactions\n"+
		"is the one that other load of the machine came between least.")
	fmt.Fprintln(out, "\n| load | mode | TPS | ratio to none | mean of the fastest tenth | none's to it | p99 | none's to it | CPU per transaction | none's to it | rounds |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, workload := range o.workloads {
		none := columns(results[workload]["none"])
		for _, mode := range o.modes {
			c := columns(results[workload][mode])
			fmt.Fprintf(out, "| %s | %s | %.0f | %s | %.1f us | %s | %.1f us | %s | %.1f us | %s | %d |\n", workload, mode,
				rows.Quantile(c.tps, 0.5), spread(ratiosOf(c.tps, none.tps)),
				rows.Quantile(c.fast, 0.5)*1e6, spread(ratiosOf(none.fast, c.fast)),
				rows.Quantile(c.p99, 0.5)*1e6, spread(ratiosOf(none.p99, c.p99)),
				rows.Quantile(c.cpu, 0.5)*1e6, spread(ratiosOf(none.cpu, c.cpu)), len(c.tps))
		}
	}
	return nil
}

// table holds the values of a mode's runs.
type table struct{ tps, cpu, fast, p99 []float64 }

func columns(results []result) (t table) {
	for _, r := range results {
		t.tps, t.cpu, t.fast, t.p99 = append(t.tps, r.tps), append(t.cpu, r.cpu), append(t.fast, r.fast), append(t.p99, r.p99)
	}
	return t
}

// spread shows the median and the middle half of ratios.
func spread(ratios []float64) string {
	if len(ratios) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.3f (%.3f to %.3f)", rows.Quantile(ratios, 0.5), rows.Quantile(ratios, 0.25), rows.Quantile(ratios, 0.75))
}
