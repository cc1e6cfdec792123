// Command agent is Plumbline's node agent: it follows the processes, containers and volumes
// of one node and measures, in the kernel, where the time of each database statement goes.
package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/plumbline/plumbline/exporters/agent/bpfstats"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/query"
	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
)

func main() { os.Exit(run(os.Args[1:])) }

// run is the program; it returns its exit code.
func run(args []string) int {
	app := exporterkit.New("plumbline-agent", "Measures where the time of each database statement goes on this node.", ":9437",
		"plumbline-agent --node=$(hostname)",
		"plumbline-agent --check",
		"plumbline-agent --no-collector.query --volume.identity-file=/etc/plumbline/volumes.yaml",
		"plumbline-agent --collector.trace --trace.sample=1")
	hostname, _ := os.Hostname()
	var opts settings
	app.Flags.Flag("node", "Value of the node label; the Kubernetes node's name on a cluster.").
		Envar("NODE_NAME").Default(hostname).StringVar(&opts.Node)
	app.Flags.Flag("path.procfs", "Root of procfs.").Default("/proc").StringVar(&opts.ProcFS)
	app.Flags.Flag("path.sysfs", "Root of sysfs.").Default("/sys").StringVar(&opts.SysFS)
	identities := app.Flags.Flag("volume.identity-file", "YAML file that names volumes by mount point where there is no Kubernetes.").String()
	kubernetes := app.Flags.Flag("kubernetes", "Query the Kubernetes API server for the names of volumes and pods.").Bool()
	kubeconfig := app.Flags.Flag("kubernetes.kubeconfig", "How to reach the API server; the pod's own service account if empty.").Envar("KUBECONFIG").String()
	controls := app.Flags.Flag("control.class", `A storage class that the others are compared with, as only the host can slow it; may be repeated, and be a list with commas. On Kubernetes also each StorageClass with the label or annotation plumbline.io/control: "true".`).
		Envar("CONTROL_CLASSES").Strings()
	app.Flags.Flag("query.max-servers", `Database servers with series of their own; further ones share server="other". Each takes 18 KB of kernel memory per CPU.`).
		Default("32").IntVar(&opts.query.MaxServers)
	app.Flags.Flag("query.scan-interval", "How often processes are scanned for database servers; beginnings and ends that the kernel reports do not wait for it.").
		Default("10s").DurationVar(&opts.query.ScanInterval)
	app.Flags.Flag("query.server-name", "The name of a database server's program, as ENGINE=NAME with the engine postgresql, mysql, mariadb or redis, such as redis=keydb-server, beside those that are known, each also as nixpkgs wraps it (.NAME-wrapped); may be repeated, up to 8 times. The kernel keeps 15 bytes of a name (/proc/PID/comm).").
		StringsVar(&opts.query.ServerNames)
	app.Flags.Flag("query.server-deny", `A regular expression of database servers' labels, anchored at both ends, such as 'batch/.*': these servers are not followed. On Kubernetes also those of each pod with the annotation plumbline.io/follow: "false".`).
		StringVar(&opts.query.Deny)
	app.Flags.Flag("query.tls", "Whose encrypted connections are read: trusted, those of servers whose program and TLS library only root may write; or off.").
		Default(query.TLSTrusted).EnumVar(&opts.query.TLS, query.TLSTrusted, query.TLSOff)
	app.Flags.Flag("query.top", fmt.Sprintf("PostgreSQL queries of each server with series of their own, by the server's query identifier: those with the most time, at most %d; all others are in queryid=\"other\". 0: queries are not distinguished.", query.MaxTop)).
		Default(fmt.Sprint(query.DefaultTop)).IntVar(&opts.query.Top)
	app.Flags.Flag("nvme.name", "How a storage backend names its volumes over NVMe over Fabrics, as ENGINE=REGEXP: the subsystem's whole name (NQN), with a group (?P<volume>…) and, where it is one replica of a volume, a group (?P<replica>…); may be repeated. Longhorn's and Mayastor's are known; of others the volume is the whole name, and behind a slash the namespace's number above 1.").
		StringsVar(&opts.nvme.Names)
	app.Flags.Flag("iscsi.name", "How a storage backend names its volumes over iSCSI, as ENGINE=REGEXP: the target's whole name (IQN), with a group (?P<volume>…) and, where it is one replica of a volume, a group (?P<replica>…), such as lab=iqn\\.2026-11\\.io\\.example:(?P<volume>.+)-r-(?P<replica>[0-9]+); may be repeated. Longhorn's, cStor's and Jiva's are known; of others the volume is the whole name, behind a slash the LUN above 0, and on initiators behind an @ what the logical unit calls itself (/sys/block/sda/device/wwid), as an array may have one target for all and LUNs of each initiator's own.").
		StringsVar(&opts.iscsi.Names)
	app.Flags.Flag("nvme.target", "The name of a program that is an NVMe over TCP target in user space, as the kernel shows it (/proc/PID/comm), beside io-engine, spdk_tgt, nvmf_tgt and reactor_*; one that ends with a star is how names begin; may be repeated. Of root's processes of that name the sockets are followed.").
		StringsVar(&opts.nvme.UserTargets)
	app.Flags.Flag("iscsi.target", "The name of a program that is an iSCSI target in user space, as the kernel shows it (/proc/PID/comm), beside tgtd, istgt, gotgt and jiva; may be repeated. Of root's processes of that name the sockets are followed.").
		StringsVar(&opts.iscsi.UserTargets)
	app.Flags.Flag("disk.users", "Users of each disk with series of their own, the largest; all others are in one.").
		Default("5").IntVar(&opts.disk.Users)
	app.Flags.Flag("trace.sample", "With --collector.trace, one in so many of the statements that waited for a file or another session is followed; 1 is all.").
		Default("10").IntVar(&opts.trace.Sample)
	app.Flags.Flag("trace.slowest", "How many of the slowest statements of the last ten minutes /slowest shows, and of the slowest requests to replicas of this node.").
		Default("20").IntVar(&opts.trace.Slowest)
	app.Flags.Flag("trace.otlp-endpoint", "Where traces of the sample and of slow statements are sent by OTLP over HTTP, such as http://tempo:4318/v1/traces; headers and certificates by OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_HEADERS). Nowhere if empty.").
		StringVar(&opts.trace.OTLP)
	ring := app.Flags.Flag("trace.ring-size", "Room for events that are not read yet, rounded up to a power of two: 8MB are 70,000.").Default("8MB").Bytes()
	stats := app.Flags.Flag("bpf.stats", "Turn on the kernel's run-time statistics of BPF programs while the agent runs (needs CAP_SYS_ADMIN; costs every BPF program of the machine two clock readings a run).").Bool()
	attachMode := app.Flags.Flag("bpf.attach-mode", "How programs watch calls on sockets: auto, what fits the kernel; the others are for comparisons and tests.").
		Default(string(platform.Auto)).Enum(string(platform.Auto), string(platform.Tracepoints), string(platform.WithBackups), string(platform.Functions))
	check := app.Flags.Flag("check", "Load and attach everything, report what works and what does not, and exit.").Bool()
	enabled := map[string]*bool{}
	for _, e := range collectors {
		enabled[e.name] = app.Flags.Flag("collector."+e.name, e.help).Default(fmt.Sprint(e.byDefault)).Bool()
	}
	log := app.Parse(args)
	opts.Log = log
	opts.trace.RingBytes = uint64(*ring)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	set := app.NewSet(log)
	var err error
	if opts.Controls, err = volume.NewControls(*controls...); err != nil {
		log.Error("--control.class", "err", err)
		return 2
	}
	var sources []volume.Source
	if *identities != "" {
		sources = append(sources, volume.NewFile(*identities, opts.Node))
	}
	opts.Replicas, opts.Servers = &collector.Replicas{}, &collector.Servers{}
	opts.Calls = untrusted.NewCalls(untrusted.DefaultTimeout, untrusted.DefaultHanging)
	if *kubernetes {
		objects, err := follow(*kubeconfig, log)
		if err != nil {
			log.Error("no names of volumes and pods from Kubernetes", "err", err)
			return 1
		}
		sources = append(sources, volume.NewKubernetes(objects, opts.Node))
		opts.Controls.Follow(objects)
		opts.Pods = pod.NewNode(opts.ProcFS, opts.Node, objects, opts.Calls)
		if err := objects.Run(ctx); err != nil {
			log.Error("no names of volumes and pods from Kubernetes", "err", err)
			return 1
		}
		set.Add("kubernetes", objects)
	}
	app.Registry.MustRegister(collector.NewSelf(opts.Calls))
	opts.Dispatcher = collector.NewDispatcher(opts.ProcFS)
	set.Add("dispatcher", collector.NewDispatcherStats(opts.Dispatcher))
	opts.AttachMode = platform.AttachMode(*attachMode)
	features := platform.Found(opts.AttachMode)
	app.Registry.MustRegister(features)
	opts.Volumes = volume.NewNode(opts.ProcFS, opts.SysFS, sources...)
	if opts.Pods != nil {
		opts.Volumes.Pods = opts.Pods
	}

	failed := 0
	var results []exporterkit.CheckResult
	if *stats {
		r := exporterkit.CheckResult{Part: "BPF run-time statistics", Optional: true}
		on, err := bpfstats.Enable()
		if err != nil {
			log.Error("no run-time statistics of BPF programs", "err", err)
			r.Err, r.Note = err, "plumbline_bpf_run_seconds_total and plumbline_bpf_runs_total stay 0"
		} else {
			defer on.Close()
		}
		results = append(results, r)
	}
	if *enabled["trace"] {
		opts.Tracing = &collector.Tracing{}
	}
	var started []collector.Collector
	for _, e := range collectors {
		if !*enabled[e.name] {
			continue
		}
		c, err := e.make(opts)
		if err == nil {
			err = c.Start(ctx)
		}
		if err != nil {
			// The other collectors go on; this one is reported as failed at every scrape.
			failed++
			log.Error("collector cannot start", "collector", e.name, "err", err)
			results = append(results, exporterkit.CheckResult{Part: "collector " + e.name, Err: err})
			set.Add(e.name, exporterkit.Failed(err))
			continue
		}
		started = append(started, c)
		if p, ok := c.(collector.Pager); ok {
			app.AddPages(p.Pages()...)
		}
		set.Add(e.name, c)
		results = append(results, c.Check()...)
	}
	results = append(results, features.Check()...)
	code := 0
	if *check {
		if exporterkit.Report(os.Stdout, results) != nil {
			code = 1
		}
	} else {
		features.Log(log)
		if err := serve(ctx, app, log, failed, len(started)); err != nil {
			log.Error("agent ends", "err", err)
			code = 1
		}
	}
	cancel()
	for _, c := range started {
		if err := c.Close(); err != nil {
			log.Warn("collector did not close cleanly", "err", err)
		}
	}
	return code
}

// follow prepares the connection to the API server.
func follow(kubeconfig string, log *slog.Logger) (*kube.Objects, error) {
	config, err := kube.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return kube.New(config, log)
}

func serve(ctx context.Context, app *exporterkit.App, log *slog.Logger, failed, started int) error {
	if failed > 0 && started == 0 {
		return fmt.Errorf("no collector could start; run with --check to see why")
	}
	return app.Serve(ctx, log)
}
