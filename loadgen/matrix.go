package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/plumbline/plumbline/loadgen/matrix"
)

func (p *program) addMatrix() {
	var (
		r             matrix.Runner
		name, targets string
		out           string
	)
	c := p.add("matrix", "Repeat a published benchmark on storage classes, print the result as Markdown and exit.",
		func(ctx context.Context, log *slog.Logger) error {
			r.Log = log
			return runMatrix(ctx, &r, name, targets, out)
		},
		"loadgen matrix wal --targets=targets.yaml",
		"loadgen matrix dalibo --targets=targets.yaml --scale=0.02 --max-clients=8 --output=dalibo.json",
		"loadgen matrix dbench --targets=targets.yaml --step=read_iops --step=write_iops")
	c.Arg("name", "The benchmark: "+matrix.Names()+".").Required().StringVar(&name)
	c.Flag("targets", "YAML file with the storage classes: targets, each with storageclass, directory, dsn, engine, replicas, local.").Required().StringVar(&targets)
	c.Flag("scale", "Shrink sizes and times to this share of the published ones.").Default("1").Float64Var(&r.Scale)
	c.Flag("max-clients", "At most this many clients, threads or jobs.").Default("300").IntVar(&r.MaxClients)
	c.Flag("min-duration", "Run each step at least this long, whatever the scale.").Default("5s").DurationVar(&r.Least)
	c.Flag("step", "Run only the step of this name; may be repeated.").StringsVar(&r.Only)
	c.Flag("output", "Write the whole result to this file, as JSON.").StringVar(&out)
	c.Flag("fio.path", "The fio program.").Default("fio").StringVar(&r.FIO)
	c.Flag("pgbench.path", "The pgbench program.").Default("pgbench").StringVar(&r.Pgbench)
	c.Flag("sysbench.path", "The sysbench program.").Default("sysbench").StringVar(&r.Sysbench)
	c.Flag("path.procfs", "Where /proc is.").Default("/proc").StringVar(&r.ProcFS)
}

func runMatrix(ctx context.Context, r *matrix.Runner, name, targets, out string) error {
	classes, err := matrix.ReadTargets(targets)
	if err != nil {
		return err
	}
	report, err := r.Run(ctx, name, classes)
	if err != nil {
		return err
	}
	if out != "" {
		file, err := os.Create(out)
		if err != nil {
			return err
		}
		if err := report.WriteJSON(file); err != nil {
			file.Close()
			return err
		}
		if err := file.Close(); err != nil {
			return err
		}
	}
	return report.WriteMarkdown(os.Stdout)
}
