// Command plumbline-lab runs Plumbline on one Linux machine: real databases on real storage
// engines, real load, and everything that measures them, supervised by process-compose.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/manifests/lab/config"
	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
	"github.com/plumbline/plumbline/manifests/lab/supervise"
)

// options is the command line; each flag has a LAB_… variable, which is what make passes.
type options struct {
	repo, dir, bin, node string
	classes, databases   string
	portBase             int
	rate, clients, scale int
	canaryRate           float64
	wait, interval       time.Duration
	trace                bool
}

func main() {
	app := kingpin.New("plumbline-lab", "Runs Plumbline on one machine: databases on real storage backends, load, and what measures them.\n\n"+
		"Examples:\n"+
		"  plumbline-lab demo --duration=60s\n"+
		"  LAB_CLASSES='local longhorn-r3' plumbline-lab up\n"+
		"  LAB_DATABASES='postgresql mariadb' plumbline-lab up\n"+
		"  LAB_TRACE=true plumbline-lab up\n"+
		"  plumbline-lab status\n"+
		"  plumbline-lab why longhorn-r3\n"+
		"  plumbline-lab break replica --duration=2m\n"+
		"  plumbline-lab demo --break=disk\n"+
		"  plumbline-lab stop --signal=9 agent\n"+
		"  plumbline-lab start agent\n"+
		"  plumbline-lab down")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("repo", "Root of the checkout.").Default(".").ExistingDirVar(&o.repo)
	app.Flag("directory", "The lab's state, on the disk to be measured; removed by down.").Envar("LAB_DIR").Default("/var/lib/plumbline-lab").StringVar(&o.dir)
	app.Flag("bin", "Folder of the programs; build/bin of the checkout if empty.").Envar("LAB_BIN").StringVar(&o.bin)
	app.Flag("node", "Value of the node label.").Default(hostname()).StringVar(&o.node)
	app.Flag("classes", "Storage classes, by the names of the files in manifests/lab/classes.").Envar("LAB_CLASSES").Default("local longhorn-r1 longhorn-r3").StringVar(&o.classes)
	app.Flag("databases", "Database engines each class has a server of, by the names of the files in manifests/lab/databases.").Envar("LAB_DATABASES").Default("postgresql").StringVar(&o.databases)
	app.Flag("port-base", "First of the loopback ports to listen on.").Envar("LAB_PORT_BASE").Default(strconv.Itoa(config.DefaultPortBase)).IntVar(&o.portBase)
	app.Flag("rate", "Transactions a second offered to each class.").Envar("LAB_RATE").Default("40").IntVar(&o.rate)
	app.Flag("canary-rate", "Transactions a second of the canary beside the load; 0: none.").Envar("LAB_CANARY_RATE").Default("5").Float64Var(&o.canaryRate)
	app.Flag("clients", "Connections of the load to each class.").Envar("LAB_CLIENTS").Default("4").IntVar(&o.clients)
	app.Flag("scale", "pgbench's scale factor; 1 is about 15 MB.").Envar("LAB_SCALE").Default("10").IntVar(&o.scale)
	app.Flag("interval", "Time between Prometheus' scrapes and between its rules' evaluations; live words look ten of them back. Longer for a slow machine.").Envar("LAB_INTERVAL").Default(config.DefaultInterval.String()).DurationVar(&o.interval)
	app.Flag("trace", "The agent follows single statements, too: what each waited for, layer by layer, on its page /slowest.").Envar("LAB_TRACE").BoolVar(&o.trace)
	app.Flag("wait", "How long the parts may take to become ready.").Envar("LAB_WAIT").Default("10m").DurationVar(&o.wait)

	up := app.Command("up", "Start the lab and leave it running.")
	down := app.Command("down", "End the lab and restore the machine.")
	stop := app.Command("stop", "End one of the lab's processes; it stays so until it is started.")
	stopName := stop.Arg("process", "Its name, as status and the logs have it.").Required().String()
	stopSignal := stop.Flag("signal", "Number of the signal that ends it, such as 9; the process's own one for an orderly end if 0.").Default("0").Int()
	start := app.Command("start", "Start a process that stop ended.")
	startName := start.Arg("process", "Its name.").Required().String()
	restart := app.Command("restart", "End a process in order and start it again.")
	restartName := restart.Arg("process", "Its name.").Required().String()
	status := app.Command("status", "Show the lab's processes, addresses, and where the time goes.")
	statusWide := status.Flag("wide", "Show the tables, too.").Bool()
	whyCommand := app.Command("why", "Show where the time of a class's commits goes, layer by layer.")
	whyClass := whyCommand.Arg("class", "The storage class.").Required().String()
	whyWindow := whyCommand.Flag("window", "How far back the means go.").Default("1m").Duration()
	breakCommand := app.Command("break", "Damage the running lab on purpose for a while, and show what is seen of it.")
	breakKind := breakCommand.Arg("kind", "What to break: "+strings.Join(damage.Kinds(), ", ")+".").Required().Enum(damage.Kinds()...)
	breakClass := breakCommand.Flag("class", "The storage class; the one with the most replicas if empty.").String()
	breakDuration := breakCommand.Flag("duration", "For how long.").Default("2m").Duration()
	healCommand := app.Command("heal", "Take back what break has done, also after it was killed.")
	demo := app.Command("demo", "Start the lab, show where the time goes, and clean up.")
	var d demoOptions
	demo.Flag("duration", "How long to show it, once there are figures; with --break, how long it is broken.").Envar("DURATION").Default("60s").DurationVar(&d.duration)
	demo.Flag("every", "How often to show it.").Default("5s").DurationVar(&d.every)
	demo.Flag("wide", "Show tables of all figures instead of bars.").Envar("WIDE").BoolVar(&d.wide)
	demo.Flag("break", "Break the lab on purpose: "+strings.Join(damage.Kinds(), ", ")+".").Envar("BREAK").EnumVar(&d.kind, append(damage.Kinds(), "")...)
	demo.Flag("page", "Where to write the page; below the checkout if not absolute, none if empty.").Default("build/demo.html").StringVar(&d.page)

	// What the lab's own supervisor runs.
	supervisor := app.Command("supervise", "Become the lab's supervisor.").Hidden()
	private := supervisor.Flag("private", "In a mount namespace of the lab's own.").Bool()
	gate := app.Command("gate", "Return when a process may be started.").Hidden()
	gateName := gate.Arg("process", "Its name.").Required().String()
	var longhorn longhornFlags
	selectReplicas := longhorn.command(app, "select-replicas", "Print the flags of the replicas that an engine may start with.")
	prepareReplica := longhorn.command(app, "prepare-replica", "Return when a replica that was away may start.")
	rejoinReplica := longhorn.command(app, "rejoin-replica", "Have a started replica rebuilt.")
	volume := app.Command("volume", "Mount a class's volume until it is stopped.").Hidden()
	file := volume.Flag("file", "File to attach to a loop device; none for a plain directory.").String()
	mountAt := volume.Flag("at", "Where to mount.").Required().String()
	owner := volume.Flag("owner", "Who owns the volume.").Required().String()

	command, err := app.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "plumbline-lab: %v; try plumbline-lab --help\n", err)
		os.Exit(2)
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	switch command {
	case up.FullCommand():
		_, err = startLab(ctx, o)
		if err == nil {
			err = showStatus(ctx, o, false)
		}
	case down.FullCommand():
		err = removeLab(o.dir)
	case status.FullCommand():
		err = showStatus(ctx, o, *statusWide)
	case demo.FullCommand():
		err = runDemo(ctx, o, d)
	case whyCommand.FullCommand():
		err = showWhy(ctx, o, *whyClass, *whyWindow)
	case breakCommand.FullCommand():
		err = runBreak(ctx, o, *breakKind, *breakClass, *breakDuration)
	case healCommand.FullCommand():
		err = heal(ctx, o)
	case stop.FullCommand():
		err = runOn(ctx, o, func(ctx context.Context, c *supervise.Client) error {
			return c.Stop(ctx, *stopName, syscall.Signal(*stopSignal))
		})
	case start.FullCommand():
		err = runOn(ctx, o, func(ctx context.Context, c *supervise.Client) error { return c.Start(ctx, *startName) })
	case restart.FullCommand():
		err = runOn(ctx, o, func(ctx context.Context, c *supervise.Client) error { return c.Restart(ctx, *restartName) })
	case supervisor.FullCommand():
		err = supervise.Run(o.dir, *private)
	case gate.FullCommand():
		err = supervise.Gate(ctx, o.dir, *gateName, os.Stderr)
	case selectReplicas.FullCommand():
		err = longhorn.selectReplicas(ctx, o.dir)
	case prepareReplica.FullCommand():
		err = longhorn.prepare(ctx, o.dir)
	case rejoinReplica.FullCommand():
		err = longhorn.rejoin(ctx)
	case volume.FullCommand():
		err = holdVolume(ctx, o.dir, *file, *mountAt, *owner)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plumbline-lab:", err)
		os.Exit(1)
	}
}

// runOn does something to a running lab, within the time that the user allows.
func runOn(ctx context.Context, o options, do func(context.Context, *supervise.Client) error) error {
	if !sandbox.Exists(o.dir) {
		return fmt.Errorf("no lab in %s; start one with `make lab-up` or `make demo`", o.dir)
	}
	ctx, cancel := context.WithTimeout(ctx, o.wait)
	defer cancel()
	return do(ctx, supervise.At(o.dir))
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.Split(name, ".")[0]
}

// holdVolume keeps a class's volume mounted until the supervisor ends it.
func holdVolume(ctx context.Context, dir, file, directory, owner string) error {
	m, err := sandbox.Mount(dir, file, directory, owner)
	if err != nil {
		return err
	}
	fmt.Println("volume ready", directory, m.Device())
	<-ctx.Done()
	return m.Unmount()
}
