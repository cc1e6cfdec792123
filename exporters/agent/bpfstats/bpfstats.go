// Package bpfstats exports what the agent itself costs in the kernel: how often its BPF
// programs ran and for how long, and how full its maps are.
package bpfstats

import (
	"errors"
	"fmt"
	"io"

	"github.com/cilium/ebpf"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// Metrics of every collector that loads BPF programs. The kernel counts runs and run time
// only while its run-time statistics are on (kernel.bpf_stats_enabled, or the agent's
// --bpf.stats, which needs CAP_SYS_ADMIN); until then both stay 0.
var (
	runTime = prometheus.NewDesc("plumbline_bpf_run_seconds_total",
		"Time the kernel spent in a BPF program of this agent, in seconds; 0 without BPF run-time statistics.",
		[]string{"collector", "program"}, nil)
	runs = prometheus.NewDesc("plumbline_bpf_runs_total",
		"Runs of a BPF program of this agent; 0 without BPF run-time statistics.",
		[]string{"collector", "program"}, nil)
	missed = prometheus.NewDesc("plumbline_bpf_missed_runs_total",
		"Events a BPF program of this agent missed because it was running on that CPU already; they are not in any other metric. "+
			"Where the program has backup programs (Linux 7.0), at most so many.",
		[]string{"collector", "program"}, nil)
	entries = prometheus.NewDesc("plumbline_bpf_map_entries",
		"Entries in a BPF map of this agent.", []string{"collector", "map"}, nil)
	maximum = prometheus.NewDesc("plumbline_bpf_map_max_entries",
		"Entries a BPF map of this agent can hold.", []string{"collector", "map"}, nil)
)

// Enable turns the kernel's run-time statistics on until the result is closed, or the process
// ends. Needs CAP_SYS_ADMIN.
func Enable() (io.Closer, error) {
	on, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, fmt.Errorf("BPF run-time statistics (need CAP_SYS_ADMIN): %w", err)
	}
	return on, nil
}

// Program is a program, or several that work as one.
type Program interface {
	// Stats returns what it cost, and how many events it missed.
	Stats() (ebpf.ProgramStats, error)
}

// Stats reports on the programs and maps of one collector. Its zero value reports nothing.
type Stats struct {
	Collector string
	// Programs by the name they shall have in the program label.
	Programs map[string]Program
	// Maps by the name they shall have in the map label: those that grow with what is observed.
	Maps map[string]*ebpf.Map
	// Fill is the fill of maps that cannot be walked, by the same name, as their owner knows it.
	Fill map[string]Fill
}

// Fill is how full a map is. Max is 0 if nothing but memory limits it.
type Fill struct{ Entries, Max int }

// Update sends the metrics. What cannot be read is left out and reported in the error.
func (s *Stats) Update(ch chan<- prometheus.Metric) error {
	var problems []error
	for name, p := range s.Programs {
		stats, err := p.Stats()
		if err != nil {
			problems = append(problems, fmt.Errorf("statistics of BPF program %s: %w", name, err))
			continue
		}
		ch <- prometheus.MustNewConstMetric(runTime, prometheus.CounterValue, stats.Runtime.Seconds(), s.Collector, name)
		ch <- prometheus.MustNewConstMetric(runs, prometheus.CounterValue, float64(stats.RunCount), s.Collector, name)
		ch <- prometheus.MustNewConstMetric(missed, prometheus.CounterValue, float64(stats.RecursionMisses), s.Collector, name)
	}
	for name, m := range s.Maps {
		n, err := count(m)
		if err != nil {
			problems = append(problems, fmt.Errorf("entries of BPF map %s: %w", name, err))
			continue
		}
		s.fill(ch, name, Fill{n, int(m.MaxEntries())})
	}
	for name, f := range s.Fill {
		s.fill(ch, name, f)
	}
	return errors.Join(problems...)
}

func (s *Stats) fill(ch chan<- prometheus.Metric, name string, f Fill) {
	ch <- prometheus.MustNewConstMetric(entries, prometheus.GaugeValue, float64(f.Entries), s.Collector, name)
	if f.Max > 0 {
		ch <- prometheus.MustNewConstMetric(maximum, prometheus.GaugeValue, float64(f.Max), s.Collector, name)
	}
}

// count walks a map's keys. A map that changes meanwhile may restart the walk, so it stops
// at as many keys as there can be.
func count(m *ebpf.Map) (int, error) {
	key := make([]byte, m.KeySize())
	var last any
	for n := 0; ; n++ {
		err := m.NextKey(last, key)
		if errors.Is(err, ebpf.ErrKeyNotExist) || n == int(m.MaxEntries()) {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
		last = key
	}
}
