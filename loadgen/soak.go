package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/report"
	"github.com/plumbline/plumbline/loadgen/soak"
)

func (p *program) addSoak() {
	var plan, folder string
	var duration, wait time.Duration
	c := p.add("soak", "Run canaries on storage classes for days, with phases of load and faults by plan; started again after an interruption, it goes on, and after its end it serves its metrics.",
		func(ctx context.Context, log *slog.Logger) error {
			return p.runSoak(ctx, log, plan, folder, duration, wait)
		},
		"loadgen soak --plan=plan.yaml --folder=soak",
		"loadgen soak --plan=plan.yaml --folder=soak --duration=72h")
	c.Flag("plan", "YAML file with duration, interval, canary, phases, faults and targets.").Required().StringVar(&plan)
	c.Flag("duration", "How long it takes in all, instead of the plan's duration.").DurationVar(&duration)
	c.Flag("wait", "Wait at most this long for the databases to answer before the soak begins, not before it goes on; 0s: do not.").Default("0s").DurationVar(&wait)
	c.Flag("folder", "Folder that keeps what is measured; the report is made from it.").Required().StringVar(&folder)
}

func (p *program) runSoak(ctx context.Context, log *slog.Logger, path, folder string, duration, wait time.Duration) error {
	plan, err := soak.ReadPlan(path, duration)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	serving := make(chan error, 1)
	go func() {
		serving <- p.Serve(ctx, log)
		stop() // a port that is taken ends the soak at once, not after days
	}()
	if wait > 0 && !soak.Begun(folder) {
		if err = matrix.Await(ctx, plan.Targets, wait, log); err != nil {
			err = fmt.Errorf("--wait: %w", err)
		}
	}
	var s *soak.Soak
	if err == nil {
		s, err = soak.Open(folder, *plan, p.Registry, log)
	}
	if s != nil {
		err = s.Run(ctx)
	}
	stop()
	if err = errors.Join(err, <-serving); s == nil {
		return err
	}
	return errors.Join(err, printVerdict(os.Stdout, folder))
}

// printVerdict words what a soak has shown so far.
func printVerdict(out io.Writer, folder string) error {
	data, err := soak.Read(folder)
	if err != nil {
		return err
	}
	r := report.New("", data)
	v := r.Verdict()
	fmt.Fprintf(out, "%.0f %% of the soak is over. %s\n", r.Done*100, v.Heading())
	for _, s := range v.Sentences {
		fmt.Fprintln(out, " ", s)
	}
	fmt.Fprintf(out, "The whole: loadgen report --folder=%s --html=soak.html\n", folder)
	return nil
}

func (p *program) addReport() {
	var folder, result, other, html, markdown, server string
	var layers []string
	c := p.add("report", "Make the report of a soak, over or still running, or of a matrix: a page of HTML that needs nothing else, and Markdown.",
		func(ctx context.Context, _ *slog.Logger) error {
			if (folder == "") == (result == "") {
				return errors.New("give either a soak's --folder or a matrix's --matrix")
			}
			if markdown == "" {
				return errors.New("--markdown is empty: give a file, or - for the standard output")
			}
			switch {
			case result != "" && (other != "" || server != "" || len(layers) > 0):
				return errors.New("--compare, --prometheus and --layer are of a soak: a matrix has its own layers, and `loadgen compare` compares two")
			case len(layers) > 0 && server == "":
				return errors.New("--layer requires --prometheus")
			}
			files := []string{html}
			if markdown != "-" {
				files = append(files, markdown)
			}
			if err := checkFiles(files...); err != nil {
				return err
			}
			if result != "" {
				return reportMatrix(result, html, markdown)
			}
			return runReport(ctx, folder, other, html, markdown, server, layers)
		},
		"loadgen report --folder=soak --html=soak.html --prometheus=http://127.0.0.1:9090",
		"loadgen report --matrix=today.json --html=today.html",
		"loadgen report --folder=soak --compare=last-week --html=soak.html --markdown=soak.md",
		"loadgen report --folder=soak --prometheus=http://127.0.0.1:9090 --layer='response p99=storageclass:query_seconds:p99_5m'")
	c.Flag("folder", "The soak's folder.").StringVar(&folder)
	c.Flag("matrix", "Instead of a soak: the JSON of a matrix (--output).").StringVar(&result)
	c.Flag("compare", "Folder of another soak to compare with.").StringVar(&other)
	c.Flag("html", "File to write the page to.").StringVar(&html)
	c.Flag("markdown", "File to write the Markdown to; - is the standard output.").Default("-").StringVar(&markdown)
	c.Flag("prometheus", "Address of a Prometheus that watched the soak, for the layers of latency and the alerts.").StringVar(&server)
	c.Flag("layer", "NAME=QUERY of a layer of latency, in seconds by storageclass; may be repeated; the rules' own if there is none.").StringsVar(&layers)
}

func reportMatrix(path, html, markdown string) error {
	r, err := matrix.Read(path)
	if err != nil {
		return fmt.Errorf("--matrix: %w", err)
	}
	return writeReport(html, markdown, r.WriteHTML, r.WriteMarkdown)
}

// writeReport writes the page, if it is wanted, and the Markdown.
func writeReport(html, markdown string, page, text func(io.Writer) error) error {
	err := writeFile(html, page)
	if markdown == "-" {
		return errors.Join(err, text(os.Stdout))
	}
	return errors.Join(err, writeFile(markdown, text))
}

func runReport(ctx context.Context, folder, other, html, markdown, server string, layers []string) error {
	data, err := soak.Read(folder)
	if err != nil {
		return fmt.Errorf("--folder: %w", err)
	}
	wanted := report.DefaultLayers
	if len(layers) > 0 {
		wanted = nil
	}
	for _, text := range layers {
		l, err := report.ParseLayer(text)
		if err != nil {
			return fmt.Errorf("--layer: %w", err)
		}
		wanted = append(wanted, l)
	}
	r := report.New("Soak "+filepath.Base(folder), data)
	bad := slices.Clone(data.Damaged)
	if other != "" {
		// The report is made all the same.
		if before, err := soak.Read(other); err != nil {
			bad = append(bad, fmt.Errorf("--compare: %w", err))
		} else {
			bad = append(bad, before.Damaged...)
			r.Compare(filepath.Base(other), report.New("", before))
		}
	}
	if server != "" {
		r.AddPrometheus(ctx, server, wanted)
	}
	return errors.Join(append(bad, writeReport(html, markdown, r.WriteHTML, r.WriteMarkdown))...)
}
