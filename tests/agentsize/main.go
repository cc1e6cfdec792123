// Command agentsize measures what the node agent costs as a node has more servers, connections
// and replicas: its CPU and memory, and the series it gives, from which one can plan.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

type options struct {
	agent                         string
	servers, connections, volumes []int
	rate                          float64
	window                        time.Duration
	out                           *rows.File
}

func main() {
	app := kingpin.New("agentsize", "Measures the agent's CPU, memory and series as a node has more servers, connections and replicas.\n\n"+
		"Needs root. Its rows go to build/results/agentsize.jsonl. Examples:\n  agentsize\n  agentsize --servers=1 --servers=100 --connections=1000 --volumes=10")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("agent", "The agent's program file.").Default("build/bin/plumbline-agent").ExistingFileVar(&o.agent)
	app.Flag("servers", "A number of PostgreSQL servers; repeatable.").Default("1", "10", "100").IntsVar(&o.servers)
	app.Flag("connections", "A number of connections to one server; repeatable.").Default("1", "10", "100", "1000").IntsVar(&o.connections)
	app.Flag("volumes", "A number of Longhorn volumes of three replicas; repeatable.").Default("1", "2", "4").IntsVar(&o.volumes)
	app.Flag("rate", "Statements, or writes to volumes, a second in all.").Default("200").Float64Var(&o.rate)
	app.Flag("time", "How long each size is measured.").Default("15s").DurationVar(&o.window)
	folder := app.Flag("folder", "Where the rows go.").Default("build/results").String()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := run(o, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "agentsize:", err)
		os.Exit(1)
	}
}

func run(o options, folder string) (err error) {
	if os.Geteuid() != 0 {
		return errors.New("measuring needs root")
	}
	if o.out, err = rows.OpenProgram(folder, "agentsize"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.out.Close()) }()
	log := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	var servers, volumes []size
	for _, n := range o.servers {
		if s, e := o.measure(log, serversOf(n, 1)); e == nil {
			servers = append(servers, s)
		} else {
			err = errors.Join(err, e)
		}
	}
	for _, n := range o.connections {
		_, e := o.measure(log, serversOf(1, n))
		err = errors.Join(err, e)
	}
	for _, n := range o.volumes {
		if s, e := o.measure(log, volumesOf(n)); e == nil {
			volumes = append(volumes, s)
		} else {
			err = errors.Join(err, e)
		}
	}
	o.plan(servers, volumes)
	return err
}

// measure builds a node of a size, and runs the agent beside it.
func (o options) measure(log func(string, ...any), n node) (s size, err error) {
	err = rig.Run(log, func(t *rig.Scope) {
		load := n.build(t, o.rate)
		s = o.observe(t, n, load)
		log("%s: %v", n.what, s)
		o.out.Add(section, n.what, "series", fmt.Sprint(s.total), "series of its own", fmt.Sprint(s.own),
			"CPU", fmt.Sprintf("%.2f %% of a core", 100*s.cpu), "of that kernel's BPF", fmt.Sprintf("%.2f %%", 100*s.bpf),
			"RSS", fmt.Sprintf("%.0f MB", s.rss/1e6), "scrape", fmt.Sprintf("%.0f ms", 1e3*s.scrape), "operations/s", fmt.Sprintf("%.0f", s.rate))
	})
	if err != nil {
		o.out.Add(section, n.what, "series", "not measured: "+err.Error())
		err = fmt.Errorf("%s: %w", n.what, err)
	}
	return s, err
}

const section = "Size: the agent on a node"

// plan adds a row with the formula that the sizes give.
func (o options) plan(servers, volumes []size) {
	if len(servers) == 0 || len(volumes) == 0 {
		return
	}
	last := servers[len(servers)-1]
	server := slope(servers)
	o.out.Add(section, "formula", "series", fmt.Sprintf("%.0f + %.0f x servers + %.0f x Longhorn volumes of three replicas with engine and replicas on the node",
		float64(last.total)-server*float64(last.parts), server, slope(volumes)))
}

// slope is how many series one part more adds: from the smallest node to the largest, as a
// node's first part brings some that all share.
func slope(sizes []size) float64 {
	first, last := sizes[0], sizes[len(sizes)-1]
	if first.parts == last.parts {
		return float64(last.own) / float64(last.parts)
	}
	return float64(last.total-first.total) / float64(last.parts-first.parts)
}

// deadline is for what takes longer the more there is.
const deadline = 5 * time.Minute

// until ends with a scope.
func until(t *rig.Scope) context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	return ctx
}
