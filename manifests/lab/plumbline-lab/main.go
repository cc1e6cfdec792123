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
	"github.com/plumbline/plumbline/manifests/lab/sandbox"
)

// options is the command line; each flag has a LAB_… variable, which is what make passes.
type options struct {
	repo, dir, bin, node string
	classes, databases   string
	portBase             int
	rate, clients, scale int
	canaryRate           float64
	wait                 time.Duration
}

func main() {
	app := kingpin.New("plumbline-lab", "Runs Plumbline on one machine: databases on real storage engines, load, and what measures them.\n\n"+
		"Examples:\n"+
		"  plumbline-lab demo --duration=60s\n"+
		"  LAB_CLASSES='local longhorn-r3' plumbline-lab up\n"+
		"  LAB_DATABASES='postgresql mariadb' plumbline-lab up\n"+
		"  plumbline-lab status\n"+
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
	app.Flag("wait", "How long the parts may take to become ready.").Default("10m").DurationVar(&o.wait)

	up := app.Command("up", "Start the lab and leave it running.")
	down := app.Command("down", "End the lab and restore the machine.")
	status := app.Command("status", "Show the lab's processes, addresses and the table.")
	demo := app.Command("demo", "Start the lab, show the live table, and clean up.")
	duration := demo.Flag("duration", "How long to show the table, once it is full.").Envar("DURATION").Default("60s").Duration()
	every := demo.Flag("every", "How often to show the table.").Default("5s").Duration()

	// What the lab's own supervisor runs.
	supervise := app.Command("supervise", "Become the lab's supervisor.").Hidden()
	private := supervise.Flag("private", "In a mount namespace of the lab's own.").Bool()
	volume := app.Command("volume", "Mount a class's volume until told to end.").Hidden()
	file := volume.Flag("file", "File to attach to a loop device; none for a plain directory.").String()
	mountAt := volume.Flag("at", "Where to mount.").Required().String()
	owner := volume.Flag("owner", "Who owns the volume.").Required().String()

	command, err := app.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "plumbline-lab: %v; try plumbline-lab --help\n", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	switch command {
	case up.FullCommand():
		_, err = startLab(ctx, o)
		if err == nil {
			err = showStatus(ctx, o)
		}
	case down.FullCommand():
		err = removeLab(o.dir)
	case status.FullCommand():
		err = showStatus(ctx, o)
	case demo.FullCommand():
		err = runDemo(ctx, o, *duration, *every)
	case supervise.FullCommand():
		err = runSupervisor(o.dir, *private)
	case volume.FullCommand():
		err = holdVolume(ctx, *file, *mountAt, *owner)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "plumbline-lab:", err)
		os.Exit(1)
	}
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return "localhost"
	}
	return strings.Split(name, ".")[0]
}

// holdVolume keeps a class's volume mounted until the supervisor ends it.
func holdVolume(ctx context.Context, file, directory, owner string) error {
	m, err := sandbox.Mount(file, directory, owner)
	if err != nil {
		return err
	}
	fmt.Println("volume ready", directory, m.Device())
	<-ctx.Done()
	return m.Unmount()
}
