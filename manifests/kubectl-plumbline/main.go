// Command kubectl-plumbline is kubectl's plugin `kubectl plumbline`: it says in words where the time of a
// database's commits goes, from the cluster's Prometheus, which it reaches through the API server.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/ask"
	"github.com/plumbline/plumbline/rules/why"
)

// release is the version that this program is of; `make release` sets it.
var release = "unreleased"

// patience is how long an answer may take: Prometheus gives up a query after two minutes.
const patience = 5 * time.Minute

// options is the command line.
type options struct {
	kubeconfig, context, namespace string
	prometheus, url                string
	// prometheusFlag and urlFlag say that it was named on the command line, and not by the environment.
	prometheusFlag, urlFlag bool
	// cluster is the value of the label cluster that is asked about, if it is named: it may be named "".
	cluster      string
	clusterNamed bool
	window, wait time.Duration
	target       string
	predict      ask.Question
	think        string
}

const examples = `Says where the time of databases' commits goes, and what stands in the way of Plumbline.

Examples:
  kubectl plumbline check                          # before anything is installed: which nodes will work
  kubectl plumbline verify --wait=3m               # after it is: are statements, phases, volumes and claims joined?
  kubectl plumbline status                         # what measures, what fires, each storage class in a sentence
  kubectl plumbline why data-shop-1 -n shop        # a claim, layer by layer
  kubectl plumbline why pod/shop-1 -n shop         # the claims of a pod
  kubectl plumbline why class/longhorn-r3          # the slowest server of a storage class
  kubectl plumbline predict data-shop-1 -n shop --to=longhorn-r3   # what its commits would take on another storage class
  kubectl plumbline predict server/shop/shop-1 --to-replicas=1 --clients=8 --windows=24
  kubectl plumbline status --prometheus=monitoring/prometheus-operated:9090
  kubectl plumbline why data-shop-1 -n shop --cluster=eu-1         # where Prometheus, Thanos or Mimir has several clusters
  kubectl port-forward -n monitoring svc/prometheus-operated 9090 &
  kubectl plumbline status --prometheus-url=http://127.0.0.1:9090   # where proxying to services is not allowed

Prometheus is asked through the API server's proxy, which needs the right to "get" services/proxy in its namespace and,
to find it, to "list" services. What else the user may not read is said to be unknown, and the rest is told; with
--prometheus-url nothing else is needed, but for check. Nothing is changed. To install the plugin, put this program into a folder of your PATH.`

func main() {
	app := kingpin.New("kubectl-plumbline", examples)
	app.HelpFlag.Short('h')
	app.Version(release)
	var o options
	app.Flag("kubeconfig", "The kubeconfig file; as kubectl finds it if empty.").StringVar(&o.kubeconfig)
	app.Flag("context", "The kubeconfig's context.").StringVar(&o.context)
	app.Flag("namespace", "Namespace of the claim or pod; the context's own if empty.").Short('n').StringVar(&o.namespace)
	app.Flag("prometheus", "NAMESPACE/SERVICE:PORT of Prometheus; looked for if empty.").Envar("PLUMBLINE_PROMETHEUS").IsSetByUser(&o.prometheusFlag).StringVar(&o.prometheus)
	app.Flag("prometheus-url", "Prometheus' own address, to ask it past the API server.").Envar("PLUMBLINE_PROMETHEUS_URL").IsSetByUser(&o.urlFlag).StringVar(&o.url)
	app.Flag("cluster", "Value of the label cluster of the series that are asked about, where Prometheus has several clusters'; --cluster= for those without the label.").IsSetByUser(&o.clusterNamed).StringVar(&o.cluster)
	app.Flag("window", "How far back the means go.").Default("5m").DurationVar(&o.window)
	status := app.Command("status", "What measures, what fires, and each storage class in a sentence.")
	whyCommand := app.Command("why", "Where the time of a database's commits goes: statement, volume, replicas, alerts.")
	whyCommand.Arg("target", "CLAIM, pod/POD, server/SERVER or class/STORAGECLASS.").Required().StringVar(&o.target)
	predictCommand := app.Command("predict", "What a database's response times would be on another storage class or number of replicas, with an interval, from what was measured of both; or why that cannot be known. Ends with 1 then.")
	predictCommand.Arg("target", "CLAIM, pod/POD, server/SERVER or class/STORAGECLASS: of one database server.").Required().StringVar(&o.target)
	predictCommand.Flag("to", "Storage class asked about.").StringVar(&o.predict.Class)
	predictCommand.Flag("to-replicas", "Number of replicas asked about, of the storage engine that the server is on.").IntVar(&o.predict.Replicas)
	predictCommand.Flag("windows", "How many windows are looked at, up to now; each as long as --window.").Default("12").IntVar(&o.predict.Windows)
	predictCommand.Flag("clients", "How many sessions work at the same time, each waiting for its answer; 0: not known, statements come at the rate at which they come now.").IntVar(&o.predict.Clients)
	predictCommand.Flag("cpus", "How many CPUs the server may use; 0: not known, and whether they suffice is not looked at.").Float64Var(&o.predict.Cores)
	predictCommand.Flag("think", "Shape of the times from an answer to the next statement, with --clients: exponential or constant.").Default("").EnumVar(&o.think, "", string(predict.Exponential), string(predict.Constant))
	predictCommand.Flag("think-time", "Mean time from a session's answer to its next statement of a kind that waits for storage; 0: what the rate of --clients leaves.").DurationVar(&o.predict.ThinkTime)
	predictCommand.Flag("same-cache", "As many reads reach storage there as do here: as much memory, and no cache of the storage's own.").BoolVar(&o.predict.SameCache)
	check := app.Command("check", "Which nodes' kernels and settings will work. Ends with 1 if one will not, or if that cannot be known.")
	verify := app.Command("verify", "Whether statements, phases, volumes and claims are joined, and if not, what is missing. Ends with 1 then. What `helm test` runs.")
	verify.Flag("wait", "How long to wait for what is missing, as after an installation.").Default("0s").DurationVar(&o.wait)

	command, err := app.Parse(os.Args[1:])
	if err != nil {
		fmt.Fprintf(os.Stderr, "kubectl-plumbline: %v; try kubectl plumbline --help\n", err)
		os.Exit(2)
	}
	o.prefer()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	ctx, stop := context.WithTimeout(ctx, patience+o.wait)
	defer stop()
	pen := why.NewPen(os.Stdout)
	switch command {
	case status.FullCommand():
		err = run(o, func(c *cluster) error { return c.status(ctx, os.Stdout, pen) })
	case whyCommand.FullCommand():
		err = run(o, func(c *cluster) error { return c.why(ctx, os.Stdout, pen) })
	case predictCommand.FullCommand():
		err = run(o, func(c *cluster) error { return c.predict(ctx, os.Stdout) })
	case check.FullCommand():
		err = run(o, func(c *cluster) error { return c.check(ctx, os.Stdout) })
	case verify.FullCommand():
		do := func(c *cluster) error { return c.verify(ctx, os.Stdout) }
		if o.url != "" {
			// Nothing but Prometheus is asked, so a pod without an account can.
			err = do(&cluster{o: o, notes: os.Stderr, now: time.Now})
		} else {
			err = run(o, do)
		}
	}
	if err != nil {
		tell(os.Stderr, err)
		cancel()
		os.Exit(1)
	}
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

// tell prints an error, in which may be what others answered.
func tell(w io.Writer, err error) {
	fmt.Fprintln(w, "kubectl-plumbline:", why.Line(err))
}

// absent says of an error that there is no kubeconfig, and nothing in one was named. What is wrong in one that is there is the user's to mend.
func (o *options) absent(err error) bool {
	// Not errors.Is: a certificate's file may be missing, too.
	return o.context == "" && (clientcmd.IsEmptyConfig(err) || os.IsNotExist(err))
}

// run does something with the cluster of a kubeconfig. Without one, Prometheus alone is asked if its own address is known.
func run(o options, do func(*cluster) error) error {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	loader := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.context})
	config, err := loader.ClientConfig()
	if err != nil {
		none := fmt.Errorf("%w: %w", errNoCluster, err)
		if o.url == "" || !o.absent(err) {
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

// subject reads what is asked about; kind is claim if the user names none.
func subject(target, namespace string) (kind string, s why.Subject, err error) {
	kind, name, ok := strings.Cut(target, "/")
	if !ok {
		kind, name = "claim", target
	}
	if name == "" {
		return "", s, fmt.Errorf("%q names nothing; want CLAIM, pod/POD, server/SERVER or class/STORAGECLASS", target)
	}
	switch kind {
	case "claim", "pvc", "persistentvolumeclaim":
		return "claim", why.Subject{Namespace: namespace, Claim: name}, nil
	case "pod":
		return kind, why.Subject{Namespace: namespace, Pod: name}, nil
	case "server":
		return kind, why.Subject{Server: name}, nil
	case "class", "storageclass", "sc":
		return "class", why.Subject{Class: name}, nil
	}
	return "", s, fmt.Errorf("%q: no kind %q; want claim, pod, server or class", target, kind)
}

// subjects returns what is asked about, and what that comes to: a pod is its claims if they are told, all else itself.
func (c *cluster) subjects(ctx context.Context) (asked why.Subject, all []why.Subject, err error) {
	kind, asked, err := subject(c.o.target, cmp.Or(c.o.namespace, "default")) // as kubectl has it
	if err != nil {
		return asked, nil, err
	}
	if c.o.namespace == "" && asked.Namespace != "" {
		c.note("The namespace is %s, as there is no kubeconfig that names one; --namespace does.", asked.Namespace)
	}
	switch kind {
	case "claim":
		if err := c.claim(ctx, asked.Namespace, asked.Claim); err != nil {
			return asked, nil, err
		}
	case "pod":
		claims, err := c.claimsOf(ctx, asked.Namespace, asked.Pod)
		if c.untold(err) {
			c.note("The pod's claims are asked of Prometheus, and of several servers why tells the slowest: %s", why.Line(err))
			break
		}
		if err != nil {
			return asked, nil, err
		}
		if len(claims) == 0 {
			return asked, nil, fmt.Errorf("pod %s/%s mounts no claim", asked.Namespace, asked.Pod)
		}
		for _, claim := range claims {
			all = append(all, why.Subject{Namespace: asked.Namespace, Claim: claim})
		}
		return asked, all, nil
	}
	return asked, []why.Subject{asked}, nil
}

// why says all of a claim, of a pod's claims, of a server or of a class.
func (c *cluster) why(ctx context.Context, w io.Writer, pen *why.Pen) error {
	_, subjects, err := c.subjects(ctx)
	if err != nil {
		return err
	}
	prometheus, err := c.findPrometheus(ctx)
	if err != nil {
		return err
	}
	api, err := c.oneCluster(ctx, prometheus)
	if err != nil {
		return err
	}
	told := 0
	var problems []string
	for _, s := range subjects {
		f, err := why.Find(ctx, api, s, c.now(), c.o.window)
		if errors.Is(err, why.ErrUnknown) && len(subjects) > 1 {
			fmt.Fprintf(w, "%s: Prometheus knows nothing of it\n", why.Clean(s.String()))
			problems = append(problems, err.Error())
			continue
		}
		if err != nil {
			return err
		}
		if told++; told > 1 {
			fmt.Fprintln(w)
		}
		pen.Why(f)
	}
	if told == 0 {
		return errors.New(strings.Join(problems, "; "))
	}
	return nil
}
