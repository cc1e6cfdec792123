package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/loadgen/predict"
	"github.com/plumbline/plumbline/loadgen/predict/input"
	"github.com/plumbline/plumbline/rules/why"
)

// predictRun is the command line of `loadgen predict`.
type predictRun struct {
	file, prometheus   string
	fromClass, toClass string
	save               string
	question           input.Question
	// cluster is the value of the label cluster to query, if it is named: it may be named "".
	cluster         string
	clusterNamed    bool
	json, sameCache bool
	clients         int
	think           string
}

func (p *program) addPredict() {
	var r predictRun
	c := p.add("predict", "What a database's response times would be on another storage class or number of replicas, with an interval, from what was measured of both; or why that cannot be known. "+
		"Exit code 0: predicted; 5: it cannot be known; 1: an error; 2: a wrong command line.",
		func(ctx context.Context, _ *slog.Logger) error { return r.run(ctx, os.Stdout) },
		"loadgen predict --prometheus=http://127.0.0.1:9090 --server=shop/shop-1 --to=longhorn-r3",
		"loadgen predict --prometheus=http://127.0.0.1:9090 --server=shop/shop-1 --to-replicas=1 --clients=8 --save=shop.json",
		"loadgen predict --from-file=shop.json --same-cache",
		"loadgen predict --from-file=shop.json --from-class-file=local.json --to-class-file=longhorn-r3.json")
	c.Flag("from-file", "What was measured, as a file (loadgen/predict/schema.json), instead of Prometheus.").StringVar(&r.file)
	c.Flag("prometheus", "URL of a Prometheus that has Plumbline's series.").Envar("PLUMBLINE_PROMETHEUS_URL").StringVar(&r.prometheus)
	c.Flag("cluster", "Value of the label cluster of the series that are queried, where Prometheus has several clusters'; --cluster= for those without the label.").IsSetByUser(&r.clusterNamed).StringVar(&r.cluster)
	c.Flag("server", "The database server, as the agent calls it.").StringVar(&r.question.Subject.Server)
	c.Flag("to", "Storage class to predict for.").StringVar(&r.question.Class)
	c.Flag("to-replicas", "Number of replicas to predict for, of the storage backend that the server is on.").IntVar(&r.question.Replicas)
	c.Flag("window", "Length of each window that is read.").Default("5m").DurationVar(&r.question.Window)
	c.Flag("windows", "How many windows, up to now.").Default("12").IntVar(&r.question.Windows)
	c.Flag("from-class-file", "Measurements of the class that the server is on, of loadgen probe, in the place of others. Both classes must be measured in the same way.").StringVar(&r.fromClass)
	c.Flag("to-class-file", "Measurements of the class to predict for, of loadgen probe, in the place of others.").StringVar(&r.toClass)
	c.Flag("clients", "How many sessions work at the same time, each waiting for its answer; 0: not known, statements come at the rate at which they come now.").IntVar(&r.clients)
	c.Flag("cpus", "How many CPUs the server may use; 0: not known, and whether they suffice is not checked.").Float64Var(&r.question.Cores)
	c.Flag("think", "Shape of the times from an answer to the next statement, with --clients: exponential or constant.").Default("").EnumVar(&r.think, "", string(predict.Exponential), string(predict.Constant))
	c.Flag("think-time", "Mean time from a session's answer to its next statement of a kind that waits for storage; 0: what the rate of --clients leaves.").DurationVar(&r.question.ThinkTime)
	c.Flag("same-cache", "As many reads reach storage there as do here: as much memory, and no cache of the storage's own.").BoolVar(&r.sameCache)
	c.Flag("save", "Also write what was measured to this file, for --from-file.").StringVar(&r.save)
	c.Flag("json", "Print JSON.").BoolVar(&r.json)
}

func (r *predictRun) run(ctx context.Context, out io.Writer) error {
	in, err := r.input(ctx)
	if err != nil {
		in = &predict.Input{}
	}
	// The error names all that is wrong at once.
	for _, given := range []struct {
		flag, path string
		class      *predict.Class
	}{{"--from-class-file", r.fromClass, &in.From}, {"--to-class-file", r.toClass, &in.To}} {
		if given.path == "" {
			continue
		}
		var failed error
		if *given.class, failed = readClass(given.path); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", given.flag, failed))
		}
	}
	if err != nil {
		return err
	}
	if r.save != "" {
		if err := writeFile(r.save, func(w io.Writer) error { return json.NewEncoder(w).Encode(in) }); err != nil {
			return fmt.Errorf("--save: %w", err)
		}
	}
	found, err := predict.Predict(in)
	if err != nil {
		return fmt.Errorf("what was measured is not usable: %w", err)
	}
	write := found.WriteText
	if r.json {
		write = found.WriteJSON
	}
	if err := write(out); err != nil {
		return err
	}
	if found.Refusal != nil {
		return unknowable
	}
	return nil
}

// input is what was measured, from a file or a Prometheus.
func (r *predictRun) input(ctx context.Context) (*predict.Input, error) {
	if (r.file == "") == (r.prometheus == "") {
		return nil, errors.New("give either --from-file or --prometheus")
	}
	if r.file != "" {
		f, err := os.Open(r.file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in, err := predict.Read(f)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", r.file, err)
		}
		in.Workload.SameCache = in.Workload.SameCache || r.sameCache
		if r.clients > 0 {
			in.Workload.Clients = r.clients
		}
		if r.question.Cores > 0 {
			in.Workload.Cores = r.question.Cores
		}
		if r.question.ThinkTime > 0 {
			in.Workload.ThinkSeconds = r.question.ThinkTime.Seconds()
		}
		if r.think != "" {
			in.Workload.Think = predict.Think(r.think)
		}
		return in, nil
	}
	if r.question.Subject.Server == "" {
		return nil, errors.New("name the server with --server, as the agent calls it (label server of plumbline_server_info)")
	}
	if r.toClass != "" && r.question.Class == "" && r.question.Replicas == 0 {
		class, err := readClass(r.toClass)
		if err != nil {
			return nil, err
		}
		r.question.Class = class.Name
	}
	if err := r.question.Check(); err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: r.prometheus})
	if err != nil {
		return nil, fmt.Errorf("--prometheus: %w", err)
	}
	r.question.At, r.question.Clients, r.question.Think, r.question.SameCache = time.Now(), r.clients, predict.Think(r.think), r.sameCache
	var store why.API = promv1.NewAPI(client)
	if r.clusterNamed {
		store = why.Within(store, r.cluster)
	}
	if err := why.OneCluster(ctx, store, r.question.At); err != nil {
		return nil, err
	}
	return r.question.Input(ctx, store)
}

// readClass reads what loadgen probe wrote.
func readClass(path string) (predict.Class, error) {
	f, err := os.Open(path)
	if err != nil {
		return predict.Class{}, err
	}
	defer f.Close()
	c, err := predict.ReadClass(f)
	if err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
