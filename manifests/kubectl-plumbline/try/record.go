package try

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"

	"github.com/plumbline/plumbline/rules/ruler"
)

// mostLine is how long a line of a record may be, in bytes.
const mostLine = 1 << 20

// Record writes what was read, and nothing that the rules recorded, as OpenMetrics with timestamps: what `promtool tsdb
// create-blocks-from openmetrics` reads. Histograms are classic ones: the format has no others.
func (m *Measurement) Record(w io.Writer) error {
	all := m.memory.All()
	families := map[string]*dto.MetricFamily{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		s := all[key]
		name := s.Metric.Get(model.MetricNameLabel)
		if strings.Contains(name, ":") || name == "ALERTS" {
			continue
		}
		f := families[name]
		if f == nil {
			kind := dto.MetricType_UNTYPED
			switch m.types[name] {
			case model.MetricTypeCounter:
				kind = dto.MetricType_COUNTER
			case model.MetricTypeGauge:
				kind = dto.MetricType_GAUGE
			}
			if len(s.Histograms) > 0 {
				kind = dto.MetricType_HISTOGRAM
			}
			f = &dto.MetricFamily{Name: &name, Type: kind.Enum()}
			families[name] = f
		}
		f.Metric = append(f.Metric, metrics(s, f.GetType())...)
	}
	out := bufio.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(families)) {
		if _, err := expfmt.MetricFamilyToOpenMetrics(out, families[name]); err != nil {
			return err
		}
	}
	if _, err := expfmt.FinalizeOpenMetrics(out); err != nil {
		return err
	}
	return out.Flush()
}

// metrics are a series' samples, without the marks of its ends: those follow from where it is missing.
func metrics(s *ruler.Series, kind dto.MetricType) (all []*dto.Metric) {
	var pairs []*dto.LabelPair
	s.Metric.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			pairs = append(pairs, &dto.LabelPair{Name: &l.Name, Value: &l.Value})
		}
	})
	for _, p := range s.Floats {
		if value.IsStaleNaN(p.F) {
			continue
		}
		m := &dto.Metric{Label: pairs, TimestampMs: &p.T}
		switch kind {
		case dto.MetricType_COUNTER:
			m.Counter = &dto.Counter{Value: &p.F}
		case dto.MetricType_GAUGE:
			m.Gauge = &dto.Gauge{Value: &p.F}
		default:
			m.Untyped = &dto.Untyped{Value: &p.F}
		}
		all = append(all, m)
	}
	for _, p := range s.Histograms {
		if !value.IsStaleNaN(p.H.Sum) {
			all = append(all, &dto.Metric{Label: pairs, TimestampMs: &p.T, Histogram: classic(p.H)})
		}
	}
	return all
}

// classic is a histogram of custom bounds as the classic one that it was made of.
func classic(h *histogram.FloatHistogram) *dto.Histogram {
	count := uint64(h.Count)
	made := &dto.Histogram{SampleCount: &count, SampleSum: &h.Sum}
	counts := make([]uint64, len(h.CustomValues)+1)
	for it := h.PositiveBucketIterator(); it.Next(); {
		b := it.At()
		counts[b.Index] = uint64(b.Count)
	}
	total := uint64(0)
	for i, bound := range append(slices.Clip(h.CustomValues), math.Inf(1)) {
		total += counts[i]
		made.Bucket = append(made.Bucket, &dto.Bucket{UpperBound: &bound, CumulativeCount: new(total)})
	}
	return made
}

// Replay reads a record and evaluates the rules over it as they were when it was made. name is the record's, for
// errors, which name the line, too; note is New's. It fails when ctx ends.
func Replay(ctx context.Context, name string, r io.Reader, note func(error)) (*Measurement, error) {
	scrapes, err := read(name, r)
	if err != nil {
		return nil, err
	}
	m, err := New(note)
	if err != nil {
		return nil, err
	}
	moments := slices.Sorted(maps.Keys(scrapes))
	// Its last scrape may have taken its time.
	if span := time.Duration(moments[len(moments)-1]-moments[0]) * time.Millisecond; span < 0 || span > MostSpan+scrapeTimeout {
		return nil, fmt.Errorf("%s: no record of kubectl plumbline try: its timestamps span %v, more than %v", name, span, MostSpan)
	}
	for _, at := range moments {
		if ctx.Err() != nil {
			break
		}
		if _, err := m.Add(ctx, time.UnixMilli(at), Page{Text: scrapes[at].text.Bytes()}); err != nil {
			return nil, fmt.Errorf("%s: at %.3f: %w", name, float64(at)/1000, err)
		}
	}
	m.Evaluate(ctx)
	if ctx.Err() != nil {
		return nil, fmt.Errorf("%s: ended at %v of the record: %w", name, m.Window(), context.Cause(ctx))
	}
	return m, nil
}

// scrape is what a record has of one moment, in the text format, which has other types: only histograms' matter here.
// kind is the TYPE line that it had last.
type scrape struct {
	text bytes.Buffer
	kind string
}

// read returns a record's scrapes by their moments, in milliseconds.
func read(name string, r io.Reader) (scrapes map[int64]*scrape, err error) {
	scrapes = map[int64]*scrape{}
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, mostLine)
	kind, ended, n := "", false, 0
	wrong := func(err error) error {
		return fmt.Errorf("%s:%d: no record of kubectl plumbline try: %w", name, n, err)
	}
	for lines.Scan() {
		n++
		line := lines.Text()
		switch {
		case ended:
			return nil, wrong(fmt.Errorf("something follows # EOF"))
		case line == "# EOF":
			ended = true
			continue
		case strings.HasPrefix(line, "# TYPE "):
			if kind = ""; strings.HasSuffix(line, " "+string(model.MetricTypeHistogram)) {
				kind = line + "\n"
			}
			continue
		case strings.HasPrefix(line, "#"):
			continue
		}
		p := textparse.NewOpenMetricsParser([]byte(kind+line+"\n# EOF\n"), nil)
		series, at, v, err := one(p)
		if err != nil {
			return nil, wrong(err)
		}
		l := scrapes[at]
		if l == nil {
			l = &scrape{}
			scrapes[at] = l
		}
		if l.kind != kind {
			l.text.WriteString(kind)
			l.kind = kind
		}
		fmt.Fprintf(&l.text, "%s %v\n", series, v)
	}
	n++
	if err := lines.Err(); err != nil {
		return nil, wrong(err)
	}
	if !ended {
		return nil, wrong(fmt.Errorf("it ends without # EOF: it was cut short"))
	}
	if len(scrapes) == 0 {
		return nil, wrong(fmt.Errorf("it has no sample"))
	}
	return scrapes, nil
}

// one reads the only sample of a text.
func one(p textparse.Parser) (series []byte, at int64, v float64, err error) {
	for {
		entry, err := p.Next()
		if err != nil {
			return nil, 0, 0, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		series, ms, v := p.Series()
		if ms == nil {
			return nil, 0, 0, fmt.Errorf("%s has no timestamp", series)
		}
		return series, *ms, v, nil
	}
}
