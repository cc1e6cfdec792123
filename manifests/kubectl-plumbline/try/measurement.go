// Package try measures for a short while where no Prometheus is: it reads exporters, keeps what they report in memory,
// evaluates Plumbline's rules over it, and answers queries.
package try

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/ruler"
	"github.com/plumbline/plumbline/rules/stored"
)

const (
	// Interval is the time from one scrape of the exporters to the next.
	Interval = time.Second
	// Evaluation is the time from one evaluation of the rules to the next.
	Evaluation = 5 * time.Second
	// MostSpan is how long may be measured: it is kept in memory.
	MostSpan = 10 * time.Minute
)

// kept are how the names begin of what is kept: the Go runtimes' own metrics are not.
var kept = []string{"plumbline_", "ebpf_exporter_"}

// up is the series that Prometheus has of each target: 1 if it was read.
const up = "up"

// Measurement is what was read of exporters, with what the rules record of it. It is a why.API. It is not safe for use
// by several at once.
type Measurement struct {
	memory *ruler.Memory
	engine *promql.Engine
	rules  []*ruler.Rule
	// types are those of the metrics that were read, by the series' names.
	types map[string]model.MetricType
	// now are the series of the last scrape.
	now map[*ruler.Series]bool
	// First and Last are the moments of the first and the last scrape.
	First, Last time.Time
	evaluated   time.Time
	note        func(error)
	clock       func() moment
}

// New returns a Measurement without samples, and the rules as they are written. note gets what could not be read or
// evaluated; all else goes on without it.
func New(note func(error)) (*Measurement, error) {
	all, err := rules.All()
	if err != nil {
		return nil, err
	}
	return &Measurement{memory: ruler.NewMemory(), engine: ruler.NewEngine(), rules: ruler.New(all), types: map[string]model.MetricType{}, note: note, clock: clocks()}, nil
}

// Page is what one scrape of an exporter read.
type Page struct {
	// Text is the exposition, in Prometheus' text format.
	Text []byte
	// Target are the labels of the target, for series that do not have them; nil if the text is of a record.
	Target map[string]string
	// Err is why the exporter was not read.
	Err error
}

// Window is how far back means go: to the first scrape.
func (m *Measurement) Window() time.Duration { return m.Last.Sub(m.First).Round(time.Second) }

// Add adds one scrape of all exporters. It evaluates the rules if it is time, and reports whether it did. An exporter
// that cannot be read, or not understood, has no series at that moment but up, which is 0; the error names it.
func (m *Measurement) Add(ctx context.Context, at time.Time, pages ...Page) (evaluated bool, err error) {
	at = representable(at)
	before := m.now
	m.now = map[*ruler.Series]bool{}
	if m.First.IsZero() {
		m.First, m.evaluated = at, at
	}
	m.Last = at
	var errs []error
	for _, p := range pages {
		samples, err := m.parse(p)
		if err != nil {
			samples = nil
			errs = append(errs, err)
		}
		if p.Target != nil {
			one := sample{labels: labels.NewBuilder(labels.FromMap(p.Target)).Set(model.MetricNameLabel, up).Labels()}
			if err == nil {
				one.number = 1
			}
			samples = append(samples, one)
		}
		for _, s := range samples {
			m.now[m.memory.Add(s.labels, at, s.number, s.histogram)] = true
		}
	}
	for s := range before {
		if !m.now[s] {
			m.memory.End(s, at)
		}
	}
	if at.Sub(m.evaluated) >= Evaluation {
		evaluated = true
		m.Evaluate(ctx)
	}
	return evaluated, errors.Join(errs...)
}

// Evaluate evaluates the rules at the moment of the last scrape, unless that is done. A rule that fails records
// nothing.
func (m *Measurement) Evaluate(ctx context.Context) {
	if m.evaluated.Equal(m.Last) {
		return
	}
	m.evaluated = m.Last
	for _, r := range m.rules {
		if err := r.Evaluate(ctx, m.engine, m.memory, m.Last); err != nil {
			m.note(err)
		}
	}
}

// Query is why.API's.
func (m *Measurement) Query(ctx context.Context, query string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	v, err := stored.Find(m.memory.Find).Query(ctx, m.engine, query, at)
	return v, nil, err
}

// representable is a moment in milliseconds that OpenMetrics' seconds, which parsers take for a float64, do not change.
func representable(at time.Time) time.Time {
	ms := at.UnixMilli()
	for int64(float64(ms)/1000*1000) != ms {
		ms--
	}
	return time.UnixMilli(ms)
}

// sample is one of a page's.
type sample struct {
	labels    labels.Labels
	number    float64
	histogram *histogram.FloatHistogram
}

// parse reads a page. Each classic histogram becomes one native histogram of the same bounds, as Prometheus does.
func (m *Measurement) parse(p Page) (samples []sample, err error) {
	if p.Err != nil {
		return nil, p.Err
	}
	parser, err := textparse.New(p.Text, "text/plain", nil, textparse.ParserOptions{ConvertClassicHistogramsToNHCB: true})
	if err != nil {
		return nil, err
	}
	seen, of := map[string]bool{}, cmp.Or(p.Target["job"], "a record")
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return samples, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of, err)
		}
		var s sample
		switch entry {
		case textparse.EntryType:
			name, kind := parser.Type()
			m.types[string(name)] = kind
			continue
		case textparse.EntrySeries:
			_, _, s.number = parser.Series()
		case textparse.EntryHistogram:
			_, _, h, fh := parser.Histogram()
			if s.histogram = fh; h != nil {
				s.histogram = h.ToFloat(nil)
			}
		default:
			continue
		}
		var l labels.Labels
		parser.Labels(&l)
		name := l.Get(model.MetricNameLabel)
		ours := p.Target == nil && name == up || slices.ContainsFunc(kept, func(begin string) bool { return strings.HasPrefix(name, begin) })
		if !ours {
			continue
		}
		b := labels.NewBuilder(l)
		for label, value := range p.Target {
			if !l.Has(label) {
				b.Set(label, value)
			}
		}
		s.labels = b.Labels()
		key := s.labels.String()
		if seen[key] {
			return nil, fmt.Errorf("%s: series %s is there twice", of, key)
		}
		seen[key] = true
		samples = append(samples, s)
	}
}
