// Command scale runs a real Prometheus with the project's rules over the exposition of many volumes, and measures what
// that costs. The exposition is synthetic: what a running lab's exporters export for one volume of three replicas,
// repeated for every volume.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/plumbline/plumbline/tests/results/rows"
	"github.com/plumbline/plumbline/tests/shape"
)

type options struct {
	lab, class, prometheus, rules, results string
	shape, dashboards, promtool, drop      string
	receive, thanos                        string
	save, past                             bool
	volumes, nodes, every                  int
	interval, evaluate, settle, measure    time.Duration
}

func main() {
	app := kingpin.New("scale", "Measures a Prometheus with the project's rules over many synthetic volumes, in the shape of a running lab's.\n\n"+
		"The shape is read from a lab with the class longhorn-r3, once; measure without the lab, which takes CPU. It needs several GiB of memory. Example:\n"+
		"  make lab-up\n  scale --save-shape\n  make lab-down\n  scale --volumes=1000 --nodes=20")
	app.HelpFlag.Short('h')
	var o options
	app.Flag("lab", "Prometheus of the lab that gives the shape.").Default("http://127.0.0.1:29090").StringVar(&o.lab)
	app.Flag("class", "The lab's class whose volume is multiplied.").Default("longhorn-r3").StringVar(&o.class)
	app.Flag("shape", "File of the shape.").Default("build/scale-shape.json").StringVar(&o.shape)
	app.Flag("save-shape", "Write that file, from the lab, and do nothing else.").BoolVar(&o.save)
	app.Flag("prometheus", "Prometheus' program file.").Default("build/bin/prometheus").StringVar(&o.prometheus)
	app.Flag("promtool", "promtool's program file, which makes the past.").Default("build/bin/promtool").StringVar(&o.promtool)
	app.Flag("rules", "The folder of rules.").Default("rules").ExistingDirVar(&o.rules)
	app.Flag("dashboards", "The folder of dashboards, whose queries are made at the end.").Default("dashboards").ExistingDirVar(&o.dashboards)
	app.Flag("results", "Where the rows of results go.").Default("build/results").StringVar(&o.results)
	app.Flag("volumes", "Volumes in all.").Default("10000").IntVar(&o.volumes)
	app.Flag("nodes", "Nodes they are on.").Default("200").IntVar(&o.nodes)
	app.Flag("database-every", "One volume in so many has a database server, with the agent's series of it.").Default("5").IntVar(&o.every)
	app.Flag("drop", "A regular expression of the names of metrics that Prometheus drops as it scrapes; none if empty.").StringVar(&o.drop)
	app.Flag("receive", "What is sent on to a Thanos receiver, which is measured, too: recorded (what rules record, and alerts), all, or none.").Default("none").EnumVar(&o.receive, "none", "recorded", "all")
	app.Flag("thanos", "Thanos' program file, for --receive (tools/build thanos).").Default("build/bin/thanos").StringVar(&o.thanos)
	app.Flag("past", "Give Prometheus the past that the rules look back at, made from what they record in a first run; --no-past measures a young one.").Default("true").BoolVar(&o.past)
	app.Flag("interval", "Interval of scrapes.").Default("30s").DurationVar(&o.interval)
	app.Flag("evaluate", "Interval of the rules that have none of their own.").Default("1m").DurationVar(&o.evaluate)
	app.Flag("settle", "Wait this long after all targets are up: rules look back 5 minutes.").Default("6m").DurationVar(&o.settle)
	app.Flag("measure", "Measure this long.").Default("3m").DurationVar(&o.measure)
	kingpin.MustParse(app.Parse(os.Args[1:]))

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out io.Writer) (err error) {
	if o.nodes < 1 || o.every < 1 || o.volumes < o.nodes {
		return fmt.Errorf("%d volumes cannot be on %d nodes", o.volumes, o.nodes)
	}
	if o.save {
		s, err := shape.Read(ctx, o.lab, o.class)
		if err != nil {
			return err
		}
		return s.Save(o.shape)
	}
	s, err := shape.Load(o.shape)
	if err != nil {
		return err
	}
	file, err := rows.Open(o.results, "volumes", rows.Command("scale"))
	if err != nil {
		return err
	}
	slog.Info("shape read", "series of a volume", shape.Series(s.Volume), "series of a node", shape.Series(s.Node))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: &cluster{shape: s, perNode: o.volumes / o.nodes, every: o.every, began: time.Now()}, ReadHeaderTimeout: 10 * time.Second}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			slog.Error("serving the synthetic exposition", "err", err)
		}
	}()
	defer server.Close()
	folder := ""
	if o.past {
		if folder, err = withPast(ctx, o, s, listener.Addr().String()); err != nil {
			return err
		}
	}
	to, err := startReceiver(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.stop()) }()
	p, err := startPrometheus(o, s, listener.Addr().String(), folder, to)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	m, err := p.measure(ctx, o)
	if err != nil {
		return err
	}
	m.write(out, file, o, s)
	printRules(out, m.costs)
	if to != nil {
		got, err := to.measure(ctx, p, o)
		if err != nil {
			return errors.Join(err, file.Close())
		}
		file.Add("A Thanos receiver of that Prometheus", fmt.Sprintf("%d volumes, %s", o.volumes, o.receive), got.cells()...)
		fmt.Fprintln(out, strings.Join(got.cells(), " | "))
	}
	slog.Info("the dashboards' queries are made")
	answers, err := p.timeQueries(ctx, o, s.Class)
	if err != nil {
		return errors.Join(err, file.Close()) // what was measured so far
	}
	for _, a := range answers {
		file.Add("The dashboards' queries over many volumes", fmt.Sprintf("%d volumes, %s", o.volumes, a.selection), a.cells()...)
		fmt.Fprintln(out, strings.Join(a.cells(), " | "))
	}
	slog.Info("it is killed and started again")
	k, err := p.restart(ctx, o)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	file.Add("Prometheus killed over many volumes", fmt.Sprintf("%d volumes", o.volumes), k.cells()...)
	fmt.Fprintln(out, strings.Join(k.cells(), " | "))
	return file.Close()
}
