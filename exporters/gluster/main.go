// Command gluster_exporter exports what only GlusterFS knows of its volumes: bricks, heals, and the
// time each brick takes for its file operations.
package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/gluster/collector"
)

// checkTimeout bounds --check as a whole.
const checkTimeout = 60 * time.Second

// lockPause is about how long a command waits that found a lock of glusterd's held; most are held for less than a
// second.
const lockPause = 2 * time.Second

func main() {
	app := exporterkit.New("gluster_exporter", "Exports what GlusterFS knows of its volumes, bricks and heals.", ":9440",
		"gluster_exporter",
		"gluster_exporter --bricks=local --node=$(NODE_NAME)        (one per storage node)",
		"gluster_exporter --gluster.option=--remote-host=storage-1  (bricks' devices stay unknown)",
		"gluster_exporter --check")
	hostname, _ := os.Hostname()
	var opts collector.Options
	app.Flags.Flag("node", "Name of this machine; the Kubernetes node's name on a cluster.").
		Envar("NODE_NAME").Default(hostname).StringVar(&opts.Node)
	app.Flags.Flag("bricks", "Which bricks to export: all of the cluster's, or only this machine's.").Default("all").EnumVar(&opts.Bricks, "all", "local")
	app.Flags.Flag("gluster.command", "GlusterFS's command line program.").Default("gluster").StringVar(&opts.CLI.Command)
	app.Flags.Flag("gluster.option", "Option put before each of its commands, as --glusterd-sock=PATH or --remote-host=NAME; may be repeated.").StringsVar(&opts.CLI.Options)
	app.Flags.Flag("poll.interval", "Mean time between two polls, and how long one queries single volumes' counts and heals at the most; the next one goes on.").
		Default("30s").DurationVar(&opts.Interval)
	app.Flags.Flag("poll.timeout", "Time after which a command is given up.").Default("10s").DurationVar(&opts.CLI.Timeout)
	app.Flags.Flag("path.procfs", "Root of procfs.").Default("/proc").StringVar(&opts.ProcFS)
	app.Flags.Flag("path.sysfs", "Root of sysfs.").Default("/sys").StringVar(&opts.SysFS)
	app.Flags.Flag("path.rootfs", "Root of the file system that holds the bricks.").Default("/").StringVar(&opts.RootFS)
	check := app.Flags.Flag("check", "Query everything once, print what answers, and exit.").Bool()
	opts.CLI.Pause = lockPause
	opts.Log = app.Parse(os.Args[1:])
	if err := run(app, opts, *check); err != nil {
		opts.Log.Error("gluster_exporter ends", "err", err)
		os.Exit(1)
	}
}

func run(app *exporterkit.App, opts collector.Options, check bool) error {
	if opts.Interval <= 0 || opts.CLI.Timeout <= 0 {
		return errors.New("--poll.interval and --poll.timeout must be above 0")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	g := collector.New(opts)
	if check {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		return exporterkit.Report(os.Stdout, g.Check(ctx))
	}
	set := app.NewSet(opts.Log)
	set.Add("gluster", g)
	go g.Run(ctx)
	return app.Serve(ctx, opts.Log)
}
