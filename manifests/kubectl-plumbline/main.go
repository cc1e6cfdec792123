// Command kubectl-plumbline is kubectl's plugin `kubectl plumbline`: it reports where the time of a database's commits
// goes, from the cluster's Prometheus, which it reaches through the API server.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/try"
	"github.com/plumbline/plumbline/rules/why"
)

// release is the version that this program is of; `make release` sets it.
var release = "unreleased"

// program is the name that this program was started by: kubectl's plugin, or plumbline on a machine without a cluster.
var program = func() string {
	if filepath.Base(os.Args[0]) == "plumbline" {
		return "plumbline"
	}
	return "kubectl-plumbline"
}()

// queryTimeout is how long an answer may take: Prometheus gives up a query after two minutes.
const queryTimeout = 5 * time.Minute

// defaultWindows is how many windows a prediction reads.
const defaultWindows = 12

// options is the command line.
type options struct {
	kubeconfig, context, namespace string
	prometheus, url                string
	// prometheusFlag and urlFlag mean that it was named on the command line, and not by the environment.
	prometheusFlag, urlFlag bool
	// cluster is the value of the label cluster to query, if it is named: it may be named "".
	cluster      string
	clusterNamed bool
	window, wait time.Duration
	target       string
	predict      input.Question
	think        string
	try          tryOptions
	top          topOptions
	live         bool
	output       string // one of answer.Formats; text if it is another
}

const examples = `Shows where the time of databases' commits goes, and what Plumbline lacks to measure it.

Examples:
  kubectl plumbline check                          # before anything is installed: which nodes will work
  kubectl plumbline verify --wait=3m               # after it is: are statements, phases, volumes and claims joined?
  kubectl plumbline status                         # what measures, what fires, each storage class in a sentence
  kubectl plumbline why data-shop-1 -n shop        # a claim, layer by layer
  kubectl plumbline why pod/shop-1 -n shop         # the claims of a pod
  kubectl plumbline why class/longhorn-r3          # the slowest server of a storage class
  kubectl plumbline status --live                  # the slowest server of each class, again each second; why, try: each server
  kubectl plumbline top data-shop-1 -n shop --by=sync   # its queries, by the time that they wait for syncs
  sudo plumbline try --for=30s                     # on a machine with a database, with nothing installed: the same answer
  kubectl plumbline try data-shop-1 -n shop --registry=REGISTRY    # a claim's node (or pod/POD, node/NODE), by a Job that is removed
  plumbline try --replay=FILE                      # of a record that --record=FILE made, here or elsewhere
  kubectl plumbline predict data-shop-1 -n shop --to=longhorn-r3   # what its commits would take on another storage class
  kubectl plumbline predict server/shop/shop-1 --to-replicas=1 --clients=8 --windows=24
  kubectl plumbline why data-shop-1 -n shop -o json | jq '.items[].verdict'   # for programs; also status, top, predict, verify
  kubectl plumbline mcp -n shop                    # for assistants: a server of the Model Context Protocol
  kubectl plumbline status --prometheus=monitoring/prometheus-operated:9090
  kubectl plumbline why data-shop-1 -n shop --cluster=eu-1         # where Prometheus, Thanos or Mimir has several clusters
  kubectl port-forward -n monitoring svc/prometheus-operated 9090 &
  kubectl plumbline status --prometheus-url=http://127.0.0.1:9090   # where proxying to services is not allowed

Plumbline queries Prometheus through the API server's proxy, which needs the right to "get" services/proxy in its
namespace and, to find it, to "list" services. What else the user may not read is shown as unknown; all else is shown.
With --prometheus-url no right is needed, but for check. Nothing is changed; of all commands events writes Events, and
try TARGET makes a Job and removes it.

Exit codes: 0, answered; 1, the answer is no (verify: something is missing; predict: it cannot be known; check: a node
will not work), or there is none; 2, the command line is wrong. Errors and notes go to standard error.

To install the plugin, put this program into a folder of your PATH.`

func main() {
	app := kingpin.New(program, examples)
	app.HelpFlag.Short('h')
	app.Version(release)
	var o options
	app.Flag("kubeconfig", "The kubeconfig file; as kubectl finds it if empty.").StringVar(&o.kubeconfig)
	app.Flag("context", "The kubeconfig's context.").StringVar(&o.context)
	app.Flag("namespace", "Namespace of the claim or pod; the context's own if empty.").Short('n').StringVar(&o.namespace)
	app.Flag("prometheus", "NAMESPACE/SERVICE:PORT of Prometheus; looked for if empty.").Envar("PLUMBLINE_PROMETHEUS").IsSetByUser(&o.prometheusFlag).StringVar(&o.prometheus)
	app.Flag("prometheus-url", "Address of Prometheus, if not through the API server.").Envar("PLUMBLINE_PROMETHEUS_URL").IsSetByUser(&o.urlFlag).StringVar(&o.url)
	app.Flag("cluster", "Value of the label cluster of the series to query, where Prometheus has several clusters'; --cluster= for those without the label.").IsSetByUser(&o.clusterNamed).StringVar(&o.cluster)
	app.Flag("window", "How far back the means go.").Default("5m").DurationVar(&o.window)
	status := app.Command("status", "What measures, what fires, and each storage class in a sentence.")
	whyCommand := app.Command("why", "Where the time of a database's commits goes: statement, volume, replicas, alerts.")
	whyCommand.Arg("target", "CLAIM, pod/POD, volume/VOLUME, server/SERVER or class/STORAGECLASS.").Required().StringVar(&o.target)
	topCommand := app.Command("top", "Which queries of a database take the time, and in which phase: PostgreSQL's by their identifier, MySQL's by the digests of mysqld_exporter. Ends with 1 if there are none.")
	topCommand.Arg("target", "CLAIM, pod/POD, volume/VOLUME, server/SERVER or class/STORAGECLASS: of all its servers.").Required().StringVar(&o.target)
	topCommand.Flag("by", "Order: "+strings.Join(why.Orders[:4], ", ")+" or a phase: "+strings.Join(why.Orders[4:], ", ")+".").Default(why.Orders[0]).EnumVar(&o.top.by, why.Orders...)
	topCommand.Flag("limit", "How many queries are shown; 0: all.").Default(strconv.Itoa(defaultTop)).UintVar(&o.top.limit)
	predictCommand := app.Command("predict", "What a database's response times would be on another storage class or number of replicas, with an interval, from what was measured of both; or why that cannot be known. Ends with 1 then.")
	predictCommand.Arg("target", "CLAIM, pod/POD, volume/VOLUME, server/SERVER or class/STORAGECLASS: of one database server.").Required().StringVar(&o.target)
	predictCommand.Flag("to", "The other storage class.").StringVar(&o.predict.Class)
	predictCommand.Flag("to-replicas", "The other number of replicas, of the storage backend that the server is on.").IntVar(&o.predict.Replicas)
	predictCommand.Flag("windows", "How many windows are read, up to now; each as long as --window.").Default(strconv.Itoa(defaultWindows)).IntVar(&o.predict.Windows)
	predictCommand.Flag("clients", "How many sessions work at the same time, each waiting for its answer; 0: not known, statements come at the rate at which they come now.").IntVar(&o.predict.Clients)
	predictCommand.Flag("cpus", "How many CPUs the server may use; 0: not known, and whether they suffice is not checked.").Float64Var(&o.predict.Cores)
	predictCommand.Flag("think", "Shape of the times from an answer to the next statement, with --clients: exponential or constant.").Default("").EnumVar(&o.think, "", string(predict.Exponential), string(predict.Constant))
	predictCommand.Flag("think-time", "Mean time from a session's answer to its next statement of a kind that waits for storage; 0: what the rate of --clients leaves.").DurationVar(&o.predict.ThinkTime)
	predictCommand.Flag("same-cache", "As many reads reach storage there as do here: as much memory, and no cache of the storage's own.").BoolVar(&o.predict.SameCache)
	tryCommand := app.Command("try", "Measures for a short while, with nothing installed, and explains as why does: this machine's database servers, which needs root and the programs of a release's archive; or, with a target, those of a cluster's node, by a Job that is removed at the end. Nothing is left behind.")
	tryCommand.Arg("target", "CLAIM, pod/POD or node/NODE of a cluster; this machine if it is left out.").StringVar(&o.try.target)
	tryCommand.Flag("registry", "Registry of the images agent and blockio, for a target.").Envar("PLUMBLINE_REGISTRY").StringVar(&o.try.registry)
	tryCommand.Flag("tag", "Their tag; this program's version if empty.").StringVar(&o.try.tag)
	tryCommand.Flag("pull-secret", "Secret in the Job's namespace with the registry's login; may be repeated.").PlaceHolder("NAME").StringsVar(&o.try.pullSecrets)
	tryCommand.Flag("pod-namespace", "Namespace of the Job, for a target. Its PodSecurity must be privileged.").Default("kube-system").StringVar(&o.try.in)
	tryCommand.Flag("break-down", "Measure the nodes of the volume's replicas, too (Longhorn), for a CLAIM or pod/POD: what a replica's process and disk take.").BoolVar(&o.try.breakDown)
	tryCommand.Flag("for", "How long to measure; with --live until it is left, or 10m.").Default("30s").IsSetByUser(&o.try.spanNamed).DurationVar(&o.try.span)
	tryCommand.Flag("record", "New file for what was measured: OpenMetrics with timestamps, without any text of a statement. promtool tsdb create-blocks-from openmetrics imports it.").StringVar(&o.try.record)
	tryCommand.Flag("replay", "Explain such a record instead of measuring. Needs no right.").StringVar(&o.try.replay)
	tryCommand.Flag("programs", "Folder with plumbline-agent, ebpf_exporter and blockio; that of this program if empty.").StringVar(&o.try.programs)
	for _, c := range []*kingpin.CmdClause{status, whyCommand, tryCommand} {
		c.Flag("live", "Show it again each second, on a screen with keys; as text where standard output is no terminal.").BoolVar(&o.live)
	}
	check := app.Command("check", "Which nodes' kernels and settings will work. Ends with 1 if one will not, or if that cannot be known.")
	verify := app.Command("verify", "Whether statements, phases, volumes and claims are joined, and if not, what is missing. Ends with 1 then. What `helm test` runs.")
	verify.Flag("wait", "How long to wait for what is missing, as after an installation.").Default("0s").DurationVar(&o.wait)
	mcp := app.Command("mcp", "A server of the Model Context Protocol on standard input and output, by which an assistant calls status, why, top, predict and alerts. It only reads.")
	eventsCommand := app.Command("events", "Writes verdicts as Kubernetes Events on claims and databases' pods, until it is stopped: what the chart runs with verdict.events=true. It has flags of its own, see kubectl plumbline events --help.")
	for _, c := range []*kingpin.CmdClause{status, whyCommand, topCommand, tryCommand, predictCommand, verify} {
		c.Flag("output", "text, json or yaml. manifests/kubectl-plumbline/answer/schema.json describes the document.").Short('o').Default("text").EnumVar(&o.output, append([]string{"text"}, answer.Formats...)...)
	}

	if len(os.Args) > 1 && os.Args[1] == "events" {
		writeEvents(os.Args[2:])
		return
	}
	command, err := app.Parse(os.Args[1:])
	if err == nil {
		err = o.check()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v; try %s --help\n", program, err, strings.ReplaceAll(program, "kubectl-", "kubectl "))
		os.Exit(exitUsage)
	}
	o.prefer()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if command != mcp.FullCommand() && !o.live { // each call of a tool, and each view, has its own time
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, queryTimeout+o.wait+o.try.span)
		defer stop()
	}
	printer := why.NewPrinter(os.Stdout)
	switch command {
	case status.FullCommand():
		err = run(o, func(c *cluster) error {
			if o.live {
				return c.liveStatus(ctx)
			}
			return c.status(ctx, os.Stdout, printer)
		})
	case whyCommand.FullCommand():
		err = run(o, func(c *cluster) error {
			if o.live {
				return c.liveWhy(ctx)
			}
			return c.why(ctx, os.Stdout, printer)
		})
	case topCommand.FullCommand():
		err = run(o, func(c *cluster) error { return c.top(ctx, os.Stdout, printer) })
	case tryCommand.FullCommand():
		context.AfterFunc(ctx, cancel) // a second interrupt ends the program at once
		do := func(c *cluster) error { return c.explain(ctx, os.Stdout, printer) }
		if err = o.try.check(); err == nil && o.try.target == "" {
			err = do(&cluster{o: o, notes: os.Stderr, now: time.Now})
		} else if err == nil {
			err = run(o, do)
		}
	case predictCommand.FullCommand():
		err = run(o, func(c *cluster) error { return c.predict(ctx, os.Stdout) })
	case check.FullCommand():
		err = run(o, func(c *cluster) error { return c.check(ctx, os.Stdout) })
	case verify.FullCommand():
		do := func(c *cluster) error { return c.verify(ctx, os.Stdout) }
		if o.url != "" {
			// Only Prometheus is queried, so this works in a pod without an account.
			err = do(&cluster{o: o, notes: os.Stderr, now: time.Now})
		} else {
			err = run(o, do)
		}
	case eventsCommand.FullCommand():
		err = usageError{errors.New("events comes first, and its flags after it")}
	case mcp.FullCommand():
		err = run(o, func(c *cluster) error { return c.mcp(ctx) })
	}
	if err != nil {
		printError(os.Stderr, err)
		cancel()
		if errors.As(err, &usageError{}) {
			os.Exit(exitUsage)
		}
		os.Exit(exitNo)
	}
}

// leastWindow and mostWindow bound --window.
const (
	leastWindow = 10 * time.Second
	mostWindow  = 7 * 24 * time.Hour
)

// check returns what is wrong with the values of the command line.
func (o *options) check() error {
	if o.window < leastWindow || o.window > mostWindow {
		return fmt.Errorf("--window=%v: want %v to %v", o.window, leastWindow, mostWindow)
	}
	if o.live && slices.Contains(answer.Formats, o.output) {
		return fmt.Errorf("--live is for people: leave out --output=%s", o.output)
	}
	if o.live && o.try.replay != "" {
		return errors.New("--replay measures nothing that --live could show: leave one of them out")
	}
	if o.live && !o.try.spanNamed {
		o.try.span = try.MostSpan
	}
	if problems := validation.IsDNS1123Label(o.namespace); o.namespace != "" && len(problems) > 0 {
		return fmt.Errorf("%q is no name of a namespace: %s", why.Clean(o.namespace), problems[0])
	}
	return nil
}

// prefer takes what is named on the command line where the environment names another Prometheus.
func (o *options) prefer() {
	switch {
	case o.url == "" || o.prometheus == "" || o.urlFlag == o.prometheusFlag:
	case o.urlFlag:
		o.prometheus = ""
	default:
		o.url = ""
	}
}

// printError prints an error, which may contain what servers returned.
func printError(w io.Writer, err error) {
	fmt.Fprintln(w, program+":", why.Line(err))
}

// absent reports whether an error means that there is no kubeconfig, and nothing in one was named. A wrong kubeconfig
// is for the user to correct.
func (o *options) absent(err error) bool {
	// Not errors.Is: a certificate's file may be missing, too.
	return o.context == "" && (clientcmd.IsEmptyConfig(err) || os.IsNotExist(err))
}

// run calls do with the cluster of a kubeconfig. Without one, only Prometheus is queried, if its own address is known.
func run(o options, do func(*cluster) error) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		absent := o.absent(err)
		if clientcmd.IsEmptyConfig(err) {
			err = errors.New("no kubeconfig; --kubeconfig names one")
		}
		none := fmt.Errorf("%w: %w", errNoCluster, err)
		if o.url == "" || !absent {
			return none
		}
		return do(&cluster{o: o, none: none, notes: os.Stderr, now: time.Now})
	}
	if o.namespace == "" {
		if o.namespace, _, err = loader.Namespace(); err != nil {
			return err
		}
	}
	c, err := newCluster(config, o)
	if err != nil {
		return err
	}
	return do(c)
}
