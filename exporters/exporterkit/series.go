package exporterkit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// maxSeries bounds the series of one collector in one scrape.
const maxSeries = 1_000_000

// maxReason bounds a log line that gives the reason why a series was dropped.
const maxReason = 512

// series is one metric of a collector, written once and checked then, so that an error affects no other series. It
// implements prometheus.Metric.
type series struct {
	*family
	sample *sample     // if it is one, which is not written before a scrape needs it
	dto    *dto.Metric // else
	key    uint64      // hash of the name and all labels
}

// family is what the series of one description have in common.
type family struct {
	desc *prometheus.Desc
	common
	// labels are the names of a sample's labels, in the order of its values; sorted is the order of the names, nil if
	// they are not known.
	labels []string
	sorted []int
}

// common is what the series of one name must have in common.
type common struct {
	name, help string
	kind       dto.MetricType
}

func (s *series) Desc() *prometheus.Desc { return s.desc }

func (s *series) Write(out *dto.Metric) error {
	if s.sample != nil {
		return s.sample.Write(out)
	}
	out.Label, out.TimestampMs = s.dto.Label, s.dto.TimestampMs
	out.Gauge, out.Counter, out.Untyped = s.dto.Gauge, s.dto.Counter, s.dto.Untyped
	out.Summary, out.Histogram = s.dto.Summary, s.dto.Histogram
	return nil
}

// sample is a number with labels, as Gauge and Counter send it: of a large cluster there are a million, so it is no
// more than that. It implements prometheus.Metric.
type sample struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	value  float64
	labels []string
}

func (s *sample) Desc() *prometheus.Desc { return s.desc }

func (s *sample) Write(out *dto.Metric) error {
	m, err := prometheus.NewConstMetric(s.desc, s.kind, s.value, s.labels...)
	if err != nil {
		return err
	}
	return m.Write(out)
}

// descKind is what a family is known by: one description may be sent as several kinds, which is a mistake.
type descKind struct {
	desc *prometheus.Desc
	kind dto.MetricType
}

// rendering takes what one Update sends.
type rendering struct {
	collector string
	limit     int // of series
	once      *logOnce
	families  map[descKind]*family
	kept      []*series
	dropped   uint64
}

func newRendering(collector string, limit int, once *logOnce) *rendering {
	return &rendering{collector: collector, limit: limit, once: once, families: map[descKind]*family{}}
}

// add keeps a metric if it can be exposed.
func (r *rendering) add(metric prometheus.Metric) {
	s, err := r.render(metric)
	if err == nil && len(r.kept) >= r.limit {
		err = fmt.Errorf("more than %d series", r.limit)
	}
	if err != nil {
		r.dropped++
		name := "a series"
		if s != nil && s.family != nil && s.name != "" {
			name = s.name
		}
		r.once.dropped(r.collector, name, err)
		return
	}
	r.kept = append(r.kept, s)
}

// dropped logs why a series of a family is left out, once for the family.
func (l *logOnce) dropped(collector, name string, why error) {
	if l.first(collector + " drops " + name) {
		l.log.Error("series are left out; plumbline_scrape_collector_dropped_series_total counts them",
			"collector", collector, "metric", label.Value(name), "err", label.Text(why.Error(), maxReason))
	}
}

// duplicate is the error of a series that was there before; its text is made only if it is read.
type duplicate struct{ *series }

func (d duplicate) Error() string {
	var m dto.Metric
	_ = d.Write(&m) // it was written before, or has as many labels as its description
	return fmt.Sprintf("its labels were there before: %s", m.Label)
}

var seed = maphash.MakeSeed()

func (r *rendering) render(metric prometheus.Metric) (s *series, err error) {
	defer func() {
		// A metric is code of its collector, too.
		if v := recover(); v != nil {
			err = newPanicError(v, debug.Stack())
		}
	}()
	if metric == nil {
		return nil, errors.New("it is nil")
	}
	desc := metric.Desc()
	if desc == nil {
		return nil, errors.New("it has no description")
	}
	if err := desc.Err(); err != nil {
		return nil, err
	}
	s = &series{}
	kind := dto.MetricType_GAUGE
	if one, ok := metric.(*sample); ok {
		s.sample = one
		if one.kind == prometheus.CounterValue {
			kind = dto.MetricType_COUNTER
		}
	} else {
		s.dto = &dto.Metric{}
		if err := metric.Write(s.dto); err != nil {
			s.family = r.familyOf(desc, kind)
			return s, err
		}
		var ok bool
		if kind, ok = kindOf(s.dto); !ok {
			s.family = r.familyOf(desc, kind)
			return s, errors.New("it has no value")
		}
	}
	s.family = r.familyOf(desc, kind)
	switch {
	case s.sample != nil && s.sorted != nil:
		return s, s.checkSample()
	case s.sample != nil: // with labels of its description
		s.dto, s.sample = &dto.Metric{}, nil
		if err := metric.Write(s.dto); err != nil {
			return s, err
		}
	}
	return s, s.checkLabels()
}

func (r *rendering) familyOf(desc *prometheus.Desc, kind dto.MetricType) *family {
	known := r.families[descKind{desc, kind}]
	if known == nil {
		known = familyOf(desc)
		known.kind = kind
		r.families[descKind{desc, kind}] = known
	}
	return known
}

// familyOf reads name, help and variable labels from a description, which shows them in its text only.
func familyOf(d *prometheus.Desc) *family {
	f := &family{desc: d}
	rest := strings.TrimPrefix(d.String(), "Desc{fqName: ")
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		f.name, _ = strconv.Unquote(quoted)
		rest = strings.TrimPrefix(rest[len(quoted):], ", help: ")
		if quoted, err = strconv.QuotedPrefix(rest); err == nil {
			f.help, _ = strconv.Unquote(quoted)
			rest = rest[len(quoted):]
		}
	}
	if _, labels, ok := strings.Cut(rest, ", constLabels: {}, variableLabels: {"); ok {
		if labels = strings.TrimSuffix(labels, "}}"); labels != "" {
			f.labels = strings.Split(labels, ",")
		}
		f.sorted = make([]int, len(f.labels))
		for i := range f.sorted {
			f.sorted[i] = i
		}
		slices.SortFunc(f.sorted, func(a, b int) int { return strings.Compare(f.labels[a], f.labels[b]) })
	}
	return f
}

func kindOf(m *dto.Metric) (dto.MetricType, bool) {
	switch {
	case m.Gauge != nil:
		return dto.MetricType_GAUGE, true
	case m.Counter != nil:
		return dto.MetricType_COUNTER, true
	case m.Summary != nil:
		return dto.MetricType_SUMMARY, true
	case m.Untyped != nil:
		return dto.MetricType_UNTYPED, true
	case m.Histogram != nil:
		return dto.MetricType_HISTOGRAM, true
	}
	return 0, false
}

// checkSample returns what is wrong with a sample, and sets key. Its labels' values are fit for it, see Gauge.
func (s *series) checkSample() error {
	if len(s.sample.labels) != len(s.labels) {
		return fmt.Errorf("it has %d labels, and its description %d", len(s.sample.labels), len(s.labels))
	}
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(s.name)
	h.WriteByte(0xff)
	for _, i := range s.sorted {
		h.WriteString(s.labels[i])
		h.WriteByte(0xff)
		h.WriteString(s.sample.labels[i])
		h.WriteByte(0xff)
	}
	s.key = h.Sum64()
	return nil
}

// checkLabels returns an error for invalid labels, which client_golang sorts by name, and sets key.
func (s *series) checkLabels() error {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(s.name)
	h.WriteByte(0xff)
	for i, l := range s.dto.Label {
		switch {
		case !model.UTF8Validation.IsValidLabelName(l.GetName()):
			return fmt.Errorf("the label name %q is not valid", l.GetName())
		case i > 0 && s.dto.Label[i-1].GetName() == l.GetName():
			return fmt.Errorf("the label %s is there twice", l.GetName())
		case !utf8.ValidString(l.GetValue()):
			return fmt.Errorf("the label %s is no UTF-8: %q", l.GetName(), l.GetValue())
		}
		h.WriteString(l.GetName())
		h.WriteByte(0xff)
		h.WriteString(l.GetValue())
		h.WriteByte(0xff)
	}
	s.key = h.Sum64()
	return nil
}

// merge brings the collectors' series into one scrape.
type merge struct {
	once     *logOnce
	seen     map[uint64]struct{}
	families map[string]common
}

func newMerge(once *logOnce) *merge {
	return &merge{once: once, seen: map[uint64]struct{}{}, families: map[string]common{}}
}

// take reports whether a series is consistent with those before it.
func (m *merge) take(collector string, s *series) bool {
	before, known := m.families[s.name]
	if !known {
		m.families[s.name] = s.common
	} else if before != s.common {
		m.once.dropped(collector, s.name, fmt.Errorf("it is a %s with the help %q; another one of this name is a %s with the help %q",
			s.kind, s.help, before.kind, before.help))
		return false
	}
	if _, twice := m.seen[s.key]; twice {
		m.once.dropped(collector, s.name, duplicate{s})
		return false
	}
	m.seen[s.key] = struct{}{}
	return true
}
