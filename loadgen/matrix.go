package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/loadgen/internal/outfile"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/rules/why"
)

func (p *program) addMatrix() {
	var (
		r             matrix.Runner
		name, targets string
		out, html     string
		prometheus    string
		cluster       string
		clusterNamed  bool
	)
	c := p.add("matrix", "Repeat a published benchmark on storage classes, print the result as Markdown and exit. Exit code 0: more than half of the runs have a result; "+
		"1: an error, half of the runs or more failed, it was interrupted, or a file could not be written; 2: a wrong command line.",
		func(ctx context.Context, log *slog.Logger) error {
			r.Log = log
			if namespace, pod, _ := strings.Cut(r.Pod, "/"); r.Pod != "" && (namespace == "" || pod == "") {
				return fmt.Errorf("--pod=%s: want NAMESPACE/NAME", r.Pod)
			}
			if prometheus != "" {
				client, err := api.NewClient(api.Config{Address: prometheus})
				if err != nil {
					return fmt.Errorf("--prometheus: %w", err)
				}
				r.Prometheus = promv1.NewAPI(client)
				if clusterNamed {
					r.Prometheus = why.Within(r.Prometheus, cluster)
				}
			}
			return runMatrix(ctx, &r, name, targets, out, html)
		},
		"loadgen matrix wal --targets=targets.yaml",
		"loadgen matrix dalibo --targets=targets.yaml --scale=0.02 --max-clients=8 --output=dalibo.json",
		"loadgen matrix dalibo --targets=targets.yaml --repeat=6 --order=abba --max-warmup=60s --output=today.json",
		"loadgen matrix dalibo --targets=targets.yaml --repeat=6 --prometheus=http://127.0.0.1:9090 --output=today.json --html=today.html",
		"loadgen matrix wal --targets=targets.yaml --prometheus=http://thanos-query:10902 --cluster=eu-1 --pod=plumbline/matrix-wal-x7 --output=/dev/stdout",
		"loadgen matrix dbench --targets=targets.yaml --step=read_iops --step=write_iops")
	c.Arg("name", "The benchmark: "+matrix.Names()+".").Required().StringVar(&name)
	c.Flag("targets", "YAML file with the storage classes: targets, each with storageclass, directory, dsn or dsn_file, engine, replicas, local.").Required().StringVar(&targets)
	c.Flag("wait", "Wait at most this long for the databases to answer before the first run; 0s: do not.").Default("0s").DurationVar(&r.Wait)
	c.Flag("scale", "Shrink sizes and times to this share of the published ones.").Default("1").Float64Var(&r.Scale)
	c.Flag("max-clients", "At most this many clients, threads or jobs.").Default("300").IntVar(&r.MaxClients)
	c.Flag("min-duration", "Run each step at least this long, whatever the scale.").Default("5s").DurationVar(&r.Least)
	c.Flag("step", "Run only the step of this name; may be repeated.").StringsVar(&r.Only)
	c.Flag("repeat", "Run each step in this many rounds, each with all classes; from 4 on ratios have intervals.").Default("1").IntVar(&r.Repeat)
	c.Flag("order", "Order of the classes in a round: "+strings.Join(matrix.Orders, ", ")+" (abba: every other round backwards).").Default("abba").EnumVar(&r.Order, matrix.Orders...)
	c.Flag("seed", "Of a random order.").Default("1").Uint64Var(&r.Seed)
	c.Flag("max-warmup", "Warm up each run until its rate is steady, at most this long and no longer than the run; 0s: two seconds for all.").Default("30s").DurationVar(&r.MaxWarmup)
	c.Flag("cooldown", "Do nothing for this long before each run.").Default("0s").DurationVar(&r.Cooldown)
	c.Flag("precondition", "Write fio's files in full before each run, so that a thin volume has all of their blocks; --no-precondition measures their allocation, too.").Default("true").BoolVar(&r.Precondition)
	c.Flag("drop-caches", "Empty the page cache before each run; needs root.").BoolVar(&r.DropCaches)
	c.Flag("output", "Write the whole result to this file, as JSON. After each run what there is of it, without layers, goes to FILE.partial, and stays there if the matrix is interrupted.").StringVar(&out)
	c.Flag("html", "Write the result to this file, as a page that needs nothing else.").StringVar(&html)
	c.Flag("prometheus", "Address of a Prometheus that watches the classes, for the layers of each run's time and what its limit was.").StringVar(&prometheus)
	c.Flag("cluster", "Value of the label cluster of the series that are queried, where Prometheus has several clusters'; --cluster= for those without the label.").IsSetByUser(&clusterNamed).StringVar(&cluster)
	c.Flag("pod", "NAMESPACE/NAME of the pod that this runs in: fio's layers are those of the ephemeral volume that it has of a class.").StringVar(&r.Pod)
	c.Flag("fio.path", "The fio program.").Default("fio").StringVar(&r.FIO)
	c.Flag("pgbench.path", "The pgbench program.").Default("pgbench").StringVar(&r.Pgbench)
	c.Flag("sysbench.path", "The sysbench program.").Default("sysbench").StringVar(&r.Sysbench)
	c.Flag("path.procfs", "Where /proc is.").Default("/proc").StringVar(&r.ProcFS)
}

func runMatrix(ctx context.Context, r *matrix.Runner, name, targets, out, html string) error {
	classes, err := matrix.ReadTargets(targets)
	if err != nil {
		return err
	}
	// Reported before hours of runs, not after.
	if err := checkFiles(out, html); err != nil {
		return err
	}
	sofar := out // keeps what there is until the end
	if out != "" && outfile.Replaces(out) {
		setAside(out, describeMatrix, r.Log)
		if sofar += partialEnd; outfile.Check(sofar) != nil {
			sofar = out // such as a file that is mounted by itself: what was there is given up for what is measured
		}
		r.Save = func(part *matrix.Report) error { return writeFile(sofar, part.WriteJSON) }
	}
	if r.Prometheus != nil {
		// It may be there when the runs are over.
		if err := answers(ctx, r.Prometheus); err != nil {
			r.Log.Warn("--prometheus: as long as that is so, layers and limits may be unknown", "err", err)
		}
	}
	report, interrupted := r.Run(ctx, name, classes)
	if report == nil {
		return interrupted
	}
	// The JSON first: the page can be made of it later. What cannot be written keeps none of the others from being.
	return errors.Join(interrupted, report.Failed(), keepMatrix(report, out, sofar), writeFile(html, report.WriteHTML), report.WriteMarkdown(os.Stdout))
}

// keepMatrix writes a matrix to its file, and takes away what was kept of it meanwhile. One that was interrupted takes
// no whole one's place.
func keepMatrix(report *matrix.Report, out, sofar string) error {
	if _, _, interrupted := report.Interrupted(); interrupted && sofar != out {
		return errors.Join(fmt.Errorf("--output: what was measured is in %s, and %s is left as it was", sofar, out), writeFile(sofar, report.WriteJSON))
	}
	err := writeFile(out, report.WriteJSON)
	if err == nil && sofar != out {
		if err = os.Remove(sofar); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}

// describeMatrix describes what is in the file of a matrix that did not come to its end.
func describeMatrix(path string) (string, error) {
	report, err := matrix.Read(path)
	if err != nil {
		return "", err
	}
	words := fmt.Sprintf("matrix %s, begun at %s: %d", report.Matrix, report.Began.UTC().Format("2006-01-02 15:04 UTC"), len(report.Rows))
	if _, planned, ok := report.Interrupted(); ok {
		words += fmt.Sprintf(" of %d", planned)
	}
	return words + " runs", nil
}

// answers returns an error if a Prometheus does not answer, or if the cluster to query is ambiguous.
func answers(ctx context.Context, p why.API) error {
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	return why.OneCluster(ctx, p, time.Now())
}
