package exporterkit

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
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

// maxReason bounds a line of the log that says why a series was dropped.
const maxReason = 512

// series is one metric of a collector, written once: whatever can go wrong with it did so where
// it harms nobody. It implements prometheus.Metric.
type series struct {
	desc   *prometheus.Desc
	dto    dto.Metric
	family family
	key    uint64 // hash of the name and all labels
}

// family is what the series of one name must have in common.
type family struct {
	name, help string
	kind       dto.MetricType
}

func (s *series) Desc() *prometheus.Desc { return s.desc }

func (s *series) Write(out *dto.Metric) error {
	out.Label, out.TimestampMs = s.dto.Label, s.dto.TimestampMs
	out.Gauge, out.Counter, out.Untyped = s.dto.Gauge, s.dto.Counter, s.dto.Untyped
	out.Summary, out.Histogram = s.dto.Summary, s.dto.Histogram
	return nil
}

// rendering takes what one Update sends.
type rendering struct {
	collector string
	limit     int // of series
	once      *logOnce
	families  map[*prometheus.Desc]family
	kept      []*series
	dropped   uint64
}

func newRendering(collector string, limit int, once *logOnce) *rendering {
	return &rendering{collector: collector, limit: limit, once: once, families: map[*prometheus.Desc]family{}}
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
		if s != nil && s.family.name != "" {
			name = s.family.name
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
	return fmt.Sprintf("its labels were there before: %s", d.dto.Label)
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
	s = &series{desc: metric.Desc()}
	if s.desc == nil {
		return s, errors.New("it has no description")
	}
	if err := s.desc.Err(); err != nil {
		return s, err
	}
	known, ok := r.families[s.desc]
	if !ok {
		known = familyOf(s.desc)
		r.families[s.desc] = known
	}
	s.family = known
	if err := metric.Write(&s.dto); err != nil {
		return s, err
	}
	if s.family.kind, ok = kindOf(&s.dto); !ok {
		return s, errors.New("it has no value")
	}
	return s, s.checkLabels()
}

// familyOf reads name and help from a description, which shows them in its text only.
func familyOf(d *prometheus.Desc) family {
	var f family
	rest := strings.TrimPrefix(d.String(), "Desc{fqName: ")
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		f.name, _ = strconv.Unquote(quoted)
		rest = strings.TrimPrefix(rest[len(quoted):], ", help: ")
		if quoted, err = strconv.QuotedPrefix(rest); err == nil {
			f.help, _ = strconv.Unquote(quoted)
		}
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

// checkLabels says what is wrong with the labels, which client_golang sorts by name, and sets key.
func (s *series) checkLabels() error {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(s.family.name)
	h.WriteByte(0xff)
	for i, l := range s.dto.Label {
		switch {
		case !model.LabelName(l.GetName()).IsValid():
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
	families map[string]family
}

func newMerge(once *logOnce) *merge {
	return &merge{once: once, seen: map[uint64]struct{}{}, families: map[string]family{}}
}

// take says whether a series fits to those before it.
func (m *merge) take(collector string, s *series) bool {
	before, known := m.families[s.family.name]
	if !known {
		m.families[s.family.name] = s.family
	} else if before != s.family {
		m.once.dropped(collector, s.family.name, fmt.Errorf("it is a %s with the help %q; another one of this name is a %s with the help %q",
			s.family.kind, s.family.help, before.kind, before.help))
		return false
	}
	if _, twice := m.seen[s.key]; twice {
		m.once.dropped(collector, s.family.name, duplicate{s})
		return false
	}
	m.seen[s.key] = struct{}{}
	return true
}
