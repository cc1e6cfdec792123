package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/exporters/exporterkit/kube"
	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/events"
	"github.com/plumbline/plumbline/rules/why"
)

// writeEvents is the command events: a program on the cluster, and its metrics.
func writeEvents(args []string) {
	app := exporterkit.New("kubectl-plumbline events",
		"Writes the verdicts of Plumbline's rules as Kubernetes Events on the claims and the databases' pods that they are about: kubectl describe shows them. It needs the right to create events, and no other.", ":9439",
		"kubectl-plumbline events --prometheus-url=http://prometheus-operated.monitoring:9090",
		"kubectl-plumbline events --prometheus-url=http://thanos-query.monitoring:9090 --cluster=eu-1",
		"kubectl-plumbline events --kubeconfig=$HOME/.kube/config --prometheus-url=http://127.0.0.1:9090   (from elsewhere)")
	var o options
	app.Flags.Flag("prometheus-url", "Prometheus' address, or that of what has its series and the rules'.").Required().StringVar(&o.url)
	app.Flags.Flag("cluster", "Value of the label cluster of this cluster's series, where Prometheus has several clusters'.").IsSetByUser(&o.clusterNamed).StringVar(&o.cluster)
	app.Flags.Flag("kubeconfig", "Kubeconfig file; without one the pod's own service account is used.").StringVar(&o.kubeconfig)
	interval := app.Flags.Flag("interval", "Time between two reads of the verdicts.").Default("30s").Duration()
	log := app.Parse(args)
	if err := func() error {
		if *interval < time.Second {
			return errors.New("--interval must be a second or more")
		}
		klog.SetSlogLogger(log)
		config, err := kube.Config(o.kubeconfig)
		if err != nil {
			return err
		}
		c := &cluster{o: o, now: time.Now}
		prometheus, err := c.find(context.Background())
		if err != nil {
			return err
		}
		hostname, _ := os.Hostname()
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		w, err := events.NewWriter(config, events.Source{API: c.among(prometheus), Log: log}, cmp.Or(hostname, app.Name), app.Registry)
		if err != nil {
			return err
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			w.Run(ctx, *interval)
		}()
		err = app.Serve(ctx, log)
		stop()
		<-ended
		return err
	}(); err != nil {
		log.Error("kubectl-plumbline events ends", "err", why.Line(err))
		os.Exit(exitNo)
	}
}
