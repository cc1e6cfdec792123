// Command longhorn_exporter exports what only Longhorn's engines, replicas and resources
// know: modes, rebuilds, placement, and the engine's own counts and latencies.
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
	"github.com/plumbline/plumbline/exporters/longhorn/collector"
)

// checkTimeout bounds --check as a whole.
const checkTimeout = 20 * time.Second

func main() {
	app := exporterkit.New("longhorn_exporter", "Exports what Longhorn's engines and replicas know about their volumes.", ":9436",
		"longhorn_exporter --targets-file=/etc/plumbline/longhorn.yaml",
		"longhorn_exporter --targets-file=/etc/plumbline/longhorn.yaml --check",
		"longhorn_exporter --kubernetes --no-collector.engine --no-collector.replica        (one per cluster)",
		"longhorn_exporter --kubernetes --kubernetes.node=$(NODE_NAME) --no-collector.volume --no-collector.node   (one per node)")
	app.Large = true
	hostname, _ := os.Hostname()
	opts := collector.Options{}
	var poll collector.Poll
	app.Flags.Flag("node", "Name of this machine; the Kubernetes node's name on a cluster.").
		Envar("NODE_NAME").Default(hostname).StringVar(&opts.Node)
	targetsFile := app.Flags.Flag("targets-file", "YAML file that lists volumes, their engines and replicas; read again when it changes.").String()
	var cluster kubernetes
	app.Flags.Flag("kubernetes", "Observe the Longhorn of the Kubernetes cluster this runs on, or of --kubernetes.kubeconfig.").BoolVar(&cluster.on)
	app.Flags.Flag("kubernetes.kubeconfig", "Kubeconfig file; without one the pod's own service account is used.").StringVar(&cluster.config)
	app.Flags.Flag("kubernetes.namespace", "Namespace of Longhorn's objects.").Default("longhorn-system").StringVar(&cluster.namespace)
	app.Flags.Flag("kubernetes.node", "Poll only engines attached to this node and export only replicas on it; empty for all.").StringVar(&cluster.node)
	app.Flags.Flag("grpc.tls-dir", "Directory with ca.crt, tls.crt and tls.key, as in Longhorn's Secret longhorn-grpc-tls, for instance managers that require it; read again at each connection. The certificate's name is longhorn-backend.longhorn-system in every namespace.").
		StringVar(&cluster.tlsDir)
	app.Flags.Flag("poll.engine-interval", "Time between two calls to an engine; under its window of one second, or windows are missed.").
		Default("800ms").DurationVar(&poll.EngineInterval)
	app.Flags.Flag("poll.state-interval", "Time between two polls of an engine's modes and of a replica.").Default("1s").DurationVar(&poll.StateInterval)
	app.Flags.Flag("poll.timeout", "Time after which a call is given up.").Default("2s").DurationVar(&poll.Timeout)
	app.Flags.Flag("path.procfs", "Root of procfs.").Default("/proc").StringVar(&opts.ProcFS)
	app.Flags.Flag("path.sysfs", "Root of sysfs.").Default("/sys").StringVar(&opts.SysFS)
	app.Flags.Flag("path.rootfs", "Root of the file system that holds the replicas' directories.").Default("/").StringVar(&opts.RootFS)
	check := app.Flags.Flag("check", "Query every engine and replica once, print which answer, and exit.").Bool()
	enabled := map[string]*bool{}
	for _, e := range collector.All() {
		enabled[e.Name] = app.Flags.Flag("collector."+e.Name, e.Help).Default(fmt.Sprint(e.Default)).Bool()
	}
	opts.Log = app.Parse(os.Args[1:])
	on := map[string]bool{}
	for name, flag := range enabled {
		on[name] = *flag
	}
	if err := run(app, opts, poll, cluster, *targetsFile, on, *check); err != nil {
		opts.Log.Error("longhorn_exporter ends", "err", err)
		os.Exit(1)
	}
}

// kubernetes holds the flags about the cluster.
type kubernetes struct {
	on                              bool
	config, namespace, node, tlsDir string
}

// connect returns the cluster, or nil if none is to be observed.
func (k kubernetes) connect(opts collector.Options) (*collector.Cluster, error) {
	if !k.on {
		if k.config != "" || k.node != "" {
			return nil, errors.New("--kubernetes.kubeconfig and --kubernetes.node mean nothing without --kubernetes")
		}
		return nil, nil
	}
	klog.SetSlogLogger(opts.Log) // the client library's own log
	config, err := kube.Config(k.config)
	if err != nil {
		return nil, err
	}
	return collector.NewCluster(config, k.namespace, k.node, opts.Log)
}

func run(app *exporterkit.App, opts collector.Options, poll collector.Poll, cluster kubernetes, targetsFile string, on map[string]bool, check bool) error {
	if (targetsFile == "") == !cluster.on {
		return errors.New("give either --targets-file or --kubernetes")
	}
	if poll.EngineInterval <= 0 || poll.StateInterval <= 0 || poll.Timeout <= 0 {
		return errors.New("--poll.engine-interval, --poll.state-interval and --poll.timeout must be above 0")
	}
	if poll.EngineInterval >= time.Second {
		opts.Log.Warn("engines publish windows of one second; longer intervals miss some", "poll.engine-interval", poll.EngineInterval)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	fleetOptions := collector.FleetOptions{Log: opts.Log, Poll: poll, Engines: on["engine"], Replicas: on["replica"]}
	if cluster.tlsDir != "" {
		if fleetOptions.TLS, err = collector.TLSFrom(cluster.tlsDir); err != nil {
			return err
		}
	}
	if opts.Cluster, err = cluster.connect(opts); err != nil {
		return err
	}
	opts.Fleet = collector.NewFleet(fleetOptions)
	set := app.NewSet(opts.Log)
	started := map[string]collector.Collector{}
	for _, e := range collector.All() {
		if !on[e.Name] || e.Cluster && opts.Cluster == nil {
			continue
		}
		started[e.Name] = e.New(opts)
		set.Add(e.Name, started[e.Name])
	}
	if len(started) == 0 {
		return errors.New("no collector is enabled that can work here")
	}
	if opts.Cluster != nil {
		opts.Cluster.Serve(on)
		set.Add("kubernetes", opts.Cluster)
		if err := opts.Cluster.Run(ctx); err != nil {
			return err
		}
	}
	switch {
	case opts.Cluster == nil:
		go collector.NewFileSource(targetsFile, opts.Log).Run(ctx, opts.Fleet)
	case on["engine"] || on["replica"]:
		go opts.Cluster.Feed(ctx, opts.Fleet)
	default:
		opts.Fleet.Set(ctx, nil) // nothing is polled
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
	if opts.Cluster != nil {
		results = opts.Cluster.Check(ctx)
	}
	select {
	case <-opts.Fleet.Ready():
		for _, e := range collector.All() {
			if c := started[e.Name]; c != nil {
				results = append(results, c.Check(ctx)...)
			}
		}
	case <-ctx.Done():
		results = append(results, exporterkit.CheckResult{Part: "list of volumes", Err: errors.New("not known in time")})
	}
	return exporterkit.Report(os.Stdout, results)
}
