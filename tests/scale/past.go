package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/tests/shape"
)

// Rules look back up to a day at what other rules have recorded. A Prometheus that has just started has
// no such past, and its rules cost little: so it is given one, made from the values that the rules
// record of this very load.

const (
	// pastFrom is from which range on a selector reads a past that has to be made: the time in which
	// windows fill gives the others theirs.
	pastFrom = 10 * time.Minute
	// pastNoise is by how much the made values vary about the recorded one.
	pastNoise = 0.05
)

// lookback is what the rules look back at: names of metrics and how far, its offset included.
func lookback() (map[string]time.Duration, error) {
	all, err := rules.All()
	if err != nil {
		return nil, err
	}
	promql := parser.NewParser(parser.Options{})
	far := map[string]time.Duration{}
	for _, r := range all {
		expr, err := promql.ParseExpr(r.Expr)
		if err != nil {
			return nil, fmt.Errorf("rule %s%s: %w", r.Record, r.Alert, err)
		}
		parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
			v, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			back := v.OriginalOffset
			for _, above := range path {
				switch above := above.(type) {
				case *parser.MatrixSelector:
					back += above.Range
				case *parser.SubqueryExpr:
					back += above.Range + above.OriginalOffset
				}
			}
			if back >= pastFrom {
				far[v.Name] = max(far[v.Name], back)
			}
			return nil
		})
	}
	return far, nil
}

// past is a series, its value now and how far back it is made.
type past struct {
	series model.Metric
	value  float64
	far    time.Duration
}

// readPast queries Prometheus for all series whose past the rules read.
func (p *prometheus) readPast(ctx context.Context) ([]past, error) {
	far, err := lookback()
	if err != nil {
		return nil, err
	}
	var all []past
	for name, back := range far {
		series, err := p.Vector(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, s := range series {
			if s.Histogram != nil {
				continue // the exporters', at which rules look back for minutes: their windows fill
			}
			all = append(all, past{s.Metric, float64(s.Value), back})
		}
	}
	return all, nil
}

// writePast makes blocks of that past, which ends now, in the data folder of a Prometheus that has not started yet.
func writePast(ctx context.Context, promtool, folder string, all []past, step time.Duration) (samples int, err error) {
	text := filepath.Join(folder, "past.om")
	f, err := os.Create(text)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.Remove(text)) }()
	samples, err = encodePast(f, all, step)
	if err = errors.Join(err, f.Close()); err != nil {
		return samples, err
	}
	// Few large blocks: promtool reads the text once for each.
	command := exec.CommandContext(ctx, promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", "--max-block-duration=18h", text, filepath.Join(folder, "data"))
	if output, err := command.CombinedOutput(); err != nil {
		return samples, fmt.Errorf("promtool: %w: %s", err, output)
	}
	return samples, nil
}

// encodePast writes the past as OpenMetrics text.
func encodePast(to io.Writer, all []past, step time.Duration) (samples int, err error) {
	w := bufio.NewWriterSize(to, 1<<20)
	random := rand.New(rand.NewPCG(1, 2)) // the same at every run
	end := time.Now().Truncate(step)
	for _, s := range all {
		series := openMetrics(s.series)
		for at := end.Add(-s.far); at.Before(end); at = at.Add(step) {
			value := s.value
			if value != math.Trunc(value) { // a count, a bit, or a thing that is there does not vary
				value *= 1 + pastNoise*(2*random.Float64()-1)
			}
			if _, err := fmt.Fprintf(w, "%s %g %d\n", series, value, at.Unix()); err != nil {
				return samples, err
			}
			samples++
		}
	}
	if _, err := w.WriteString("# EOF\n"); err != nil {
		return samples, err
	}
	return samples, w.Flush()
}

// openMetrics names a series as that format does.
func openMetrics(m model.Metric) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var all []string
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if name != model.MetricNameLabel {
			all = append(all, string(name)+`="`+escape.Replace(string(m[name]))+`"`)
		}
	}
	if len(all) == 0 {
		return string(m[model.MetricNameLabel])
	}
	return string(m[model.MetricNameLabel]) + "{" + strings.Join(all, ",") + "}"
}

// withPast measures nothing: it runs a Prometheus until its rules record, and returns a folder of data with
// the past that they look back at.
func withPast(ctx context.Context, o options, s *shape.Shape, exposition string) (folder string, err error) {
	p, err := startPrometheus(o, s, exposition, "", nil)
	if err != nil {
		return "", err
	}
	all, err := func() (all []past, err error) {
		defer func() { err = errors.Join(err, p.stop()) }()
		if err := p.settled(ctx, o); err != nil {
			return nil, err
		}
		return p.readPast(ctx)
	}()
	if err != nil {
		return "", err
	}
	folder, err = os.MkdirTemp("/var/tmp", "plumbline-scale-past-")
	if err != nil {
		return "", err
	}
	began := time.Now()
	samples, err := writePast(ctx, o.promtool, folder, all, o.evaluate)
	if err != nil {
		return "", errors.Join(err, os.RemoveAll(folder))
	}
	slog.Info("a past is made", "series", len(all), "samples", samples, "took", model.Duration(time.Since(began).Round(time.Second)))
	return folder, nil
}
