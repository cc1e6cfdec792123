// Command openebs_exporter exports what only OpenEBS's engines know: volumes, replicas,
// rebuilds, pools and where they are, for Mayastor, cStor, Jiva and LocalPV.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"k8s.io/klog/v2"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/exporters/openebs/collector"
)

// checkTimeout bounds --check as a whole.
const checkTimeout = 20 * time.Second

func main() {
	app := exporterkit.New("openebs_exporter", "Exports what OpenEBS's storage backends know about their volumes.", ":9438",
		"openebs_exporter --mayastor.url=http://openebs-api-rest.openebs:8081 --kubernetes",
		"openebs_exporter --kubernetes --no-collector.mayastor --no-collector.ioengine --collector.cstor",
		"openebs_exporter --mayastor.url=http://localhost:8081 --check")
	app.Large = true
	hostname, _ := os.Hostname()
	var opts collector.Options
	app.Flags.Flag("node", "Name of this node; device paths are traced to the kernel's names on it only.").
		Envar("NODE_NAME").Default(hostname).StringVar(&opts.Node)
	app.Flags.Flag("path.procfs", "Root of procfs.").Default("/proc").StringVar(&opts.ProcFS)
	app.Flags.Flag("path.sysfs", "Root of sysfs.").Default("/sys").StringVar(&opts.SysFS)
	app.Flags.Flag("path.rootfs", "Root of the host's file system.").Default("/").StringVar(&opts.RootFS)
	app.Flags.Flag("mayastor.url", "Address of Mayastor's REST API.").StringVar(&opts.Mayastor)
	app.Flags.Flag("poll.interval", "Time between two polls of Mayastor and its io-engines.").Default("5s").DurationVar(&opts.Interval)
	app.Flags.Flag("poll.timeout", "Time after which a poll is given up.").Default("4s").DurationVar(&opts.Timeout)
	useKube := app.Flags.Flag("kubernetes", "Observe the objects of the Kubernetes cluster this runs on, or of --kubernetes.kubeconfig.").Bool()
	kubeconfig := app.Flags.Flag("kubernetes.kubeconfig", "Kubeconfig file; without one the pod's own service account is used.").String()
	check := app.Flags.Flag("check", "Query everything once, print what answers, and exit.").Bool()
	enabled := map[string]*bool{}
	for _, e := range collector.All() {
		enabled[e.Name] = app.Flags.Flag("collector."+e.Name, e.Help).Default(fmt.Sprint(e.Default)).Bool()
	}
	opts.Log = app.Parse(os.Args[1:])
	on := map[string]bool{}
	for name, flag := range enabled {
		on[name] = *flag
	}
	if err := run(app, opts, on, *useKube, *kubeconfig, *check); err != nil {
		opts.Log.Error("openebs_exporter ends", "err", err)
		os.Exit(1)
	}
}

func run(app *exporterkit.App, opts collector.Options, on map[string]bool, useKube bool, kubeconfig string, check bool) error {
	if opts.Interval <= 0 || opts.Timeout <= 0 {
		return errors.New("--poll.interval and --poll.timeout must be above 0")
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if useKube {
		klog.SetSlogLogger(opts.Log) // the client library's own log
		config, err := kube.Config(kubeconfig)
		if err != nil {
			return err
		}
		if opts.Objects, err = kube.New(config, opts.Log); err != nil {
			return err
		}
	}
	set := app.NewSet(opts.Log)
	started := map[string]collector.Collector{}
	for _, e := range collector.All() {
		if !on[e.Name] || e.Needs == "mayastor" && opts.Mayastor == "" || e.Needs == "kubernetes" && !useKube {
			continue
		}
		started[e.Name] = e.New(opts)
	}
	if len(started) == 0 {
		return errors.New("nothing to observe: give --mayastor.url, --kubernetes or both")
	}
	if opts.Objects != nil {
		set.Add("kubernetes", opts.Objects)
		if err := opts.Objects.Run(ctx); err != nil {
			return err
		}
	}
	for name, c := range started {
		if err := c.Start(ctx); err != nil {
			return fmt.Errorf("collector %s: %w", name, err)
		}
		set.Add(name, c)
	}
	if check {
		return report(ctx, opts, started)
	}
	return app.Serve(ctx, opts.Log)
}

// report prints what --check found and fails if anything does not answer.
func report(ctx context.Context, opts collector.Options, started map[string]collector.Collector) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var results []exporterkit.CheckResult
	if opts.Objects != nil {
		for _, r := range opts.Objects.Check(ctx) {
			results = append(results, exporterkit.CheckResult{Part: "Kubernetes " + r.Resource, Err: r.Err, Note: r.Note})
		}
	}
	for _, e := range collector.All() {
		if c := started[e.Name]; c != nil {
			results = append(results, c.Check(ctx)...)
		}
	}
	return exporterkit.Report(os.Stdout, results)
}
