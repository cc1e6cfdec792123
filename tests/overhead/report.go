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
	fmt.Fprintln(out, "Medians; ratios are those of runs of one round, with the middle half in parentheses.")
	fmt.Fprintln(out, "\n| load | mode | TPS | ratio to none | CPU per transaction | none's CPU to it | rounds |\n|---|---|---|---|---|---|---|")
	for _, workload := range o.workloads {
		noneTPS, noneCPU := columns(results[workload]["none"])
		for _, mode := range o.modes {
			tps, cpu := columns(results[workload][mode])
			fmt.Fprintf(out, "| %s | %s | %.0f | %s | %.1f us | %s | %d |\n", workload, mode,
				quantile(tps, 0.5), spread(ratiosOf(tps, noneTPS)), quantile(cpu, 0.5)*1e6, spread(ratiosOf(noneCPU, cpu)), len(tps))
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
