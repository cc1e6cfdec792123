// Command distributed proves that the rules work where one Prometheus ends: on Thanos, fed by pairs of Prometheus in
// agent mode from two clusters whose nodes and volumes have equal names. In one cluster a disk stalls; meanwhile a
// receiver, a router and a ruler are killed. What fires, and what the rules for either kind of histograms record, must
// be what one ordinary Prometheus over both clusters has by the rules for native ones. So must be what VictoriaMetrics
// and vmalert, which scrape the same, make of those for classic ones.
//
// The clusters' exporters are played (tests/pictures/scenario): two labs do not fit on one machine. All else is real.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/manifests/release/stage"
	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/rig"
)

type options struct {
	results string
	calm    time.Duration
}

func main() {
	app := kingpin.New("distributed", "The rules on Thanos: two clusters, pairs of Prometheus in agent mode, three receivers, two rulers, one store; a receiver, a router and a ruler are killed while a disk stalls. About ten minutes. "+
		"Beside them VictoriaMetrics with classic histograms. It needs the programs in build/bin (tools/build prometheus alertmanager thanos victoria-metrics vmalert). Examples:\n"+
		"  distributed\n  distributed --calm=6m --results=/tmp/results")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("results", "The folder that takes the figures.").Default("build/results").StringVar(&o.results)
	app.Flag("calm", "How long all is well before the disk stalls; the rules' windows are five minutes.").Default("5m30s").DurationVar(&o.calm)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	began := time.Now()
	logf := func(format string, args ...any) {
		fmt.Fprintf(os.Stderr, "%5.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
	}
	err := rig.Run(logf, func(t *rig.Scope) { run(ctx, t, o) })
	stop()
	if err != nil {
		os.Exit(1)
	}
}

// stalled is the scenario of the cluster that is damaged, and the moment in it from which the disk is stalled.
const (
	stalled   = "stalled-disk"
	stalledAt = 58 * time.Minute
)

func run(ctx context.Context, t *rig.Scope, o options) {
	folder, err := os.MkdirTemp("/var/tmp", "plumbline-distributed-")
	t.Check(err)
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	files, err := stage.Files()
	t.Check(err)
	t.Check(stage.Write(folder, files))
	file, err := rows.OpenProgram(o.results, "distributed")
	t.Check(err)

	well, damaged := startCluster(t, "well", "healthy", time.Minute), startCluster(t, "damaged", stalled, time.Minute)
	clusters := []*cluster{well, damaged}
	s := startStack(ctx, t, folder, clusters)
	t.Logf("%d processes are up; all targets are awaited", len(s.processes))
	s.awaitTargets(ctx, clusters)

	t.Logf("all is well for %s: the rules' windows fill", o.calm)
	s.await(ctx, o.calm)
	for _, e := range s.engines {
		s.sameRecords(ctx, e, file)
		s.sameAlerts(ctx, e)
	}

	damaged.player.Go(stalledAt)
	stall := time.Now()
	t.Logf("the disk stalls; a receiver, a router and a ruler are killed")
	for _, name := range []string{"receive-1", "route-1", "rule-1"} {
		s.processes[name].Kill()
	}
	for _, e := range s.engines {
		s.alarmed(ctx, e, file, stall, damaged)
		s.sameAlerts(ctx, e)
	}
	for _, e := range s.engines {
		s.samePages(ctx, e, file)
	}
	s.stored(ctx)
	s.costs(file)
	t.Check(file.Close())
}
