package scenario

import (
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/proto"
)

// Player is a scenario that continues: it serves what each of the lab's exporters would export at this moment. It is safe
// for concurrent use.
type Player struct {
	targets []Target

	mu     sync.Mutex
	began  time.Time // the moment that is shown as the scenario's begin
	last   time.Time
	states []*state
	now    []sample // of each state, at last
}

// Target is an exporter of the lab.
type Target struct {
	// Labels are the target labels that Prometheus adds to the exporter's series, with job and instance.
	Labels map[string]string
	// Path is where a Player serves its metrics.
	Path string
	// Classic is set if the exporter has classic histograms, of which Prometheus is to make native ones.
	Classic bool
}

// Play continues a scenario from a moment of it, which is now; root is the checkout's.
func (s *Scenario) Play(root string, from time.Duration) (*Player, error) {
	all, err := s.states(root)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	p := &Player{began: now.Add(-from), last: now}
	targets := map[string]*Target{}
	for _, one := range all {
		if one.labels.Get(model.MetricNameLabel) == "up" {
			set := one.labels.Map()
			delete(set, model.MetricNameLabel)
			t := &Target{Labels: set, Path: pagePath(one.labels)}
			targets[t.Path] = t
		}
	}
	for _, one := range all {
		if name := one.labels.Get(model.MetricNameLabel); name == "up" || strings.HasPrefix(name, "scrape_") {
			continue // Prometheus makes these
		}
		t := targets[pagePath(one.labels)]
		if t == nil {
			continue // an exporter that is not of the lab
		}
		t.Classic = t.Classic || one.kind == "custom"
		p.states = append(p.states, one)
	}
	p.oneKind()
	for _, path := range slices.Sorted(maps.Keys(targets)) {
		p.targets = append(p.targets, *targets[path])
	}
	p.now = make([]sample, len(p.states))
	return p, nil
}

// oneKind gives the series of a metric one kind: those without a line count nothing.
func (p *Player) oneKind() {
	kinds := map[string]*state{}
	for _, one := range p.states {
		if name := one.labels.Get(model.MetricNameLabel); one.kind != "" {
			kinds[name] = one
		}
	}
	for _, one := range p.states {
		if like := kinds[one.labels.Get(model.MetricNameLabel)]; like != nil && one.kind == "" {
			one.kind, one.rate, one.mean, one.bounds = like.kind, 0, 1, like.bounds
		}
	}
}

// Targets are the exporters.
func (p *Player) Targets() []Target { return p.targets }

// Go continues the scenario from another moment of it; what was counted so far stays.
func (p *Player) Go(to time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = time.Now().Add(-to)
}

// pagePath is where the exporter of a series is served.
func pagePath(l labels.Labels) string { return "/" + l.Get("job") + "/" + l.Get("instance") }

// ServeHTTP serves the current metrics of the exporter at a path.
func (p *Player) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !slices.ContainsFunc(p.targets, func(t Target) bool { return t.Path == r.URL.Path }) {
		http.NotFound(w, r)
		return
	}
	format := expfmt.NegotiateAccept(r.Header, expfmt.NewFormat(expfmt.TypeProtoDelim), expfmt.NewFormat(expfmt.TypeTextPlain))
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range p.families(r.URL.Path) {
		if err := encoder.Encode(f); err != nil {
			slog.Warn("a page was cut short", "path", r.URL.Path, "metric", f.GetName(), "err", err)
			return
		}
	}
}

// families returns one exporter's metrics, after the scenario has advanced to this moment.
func (p *Player) families(path string) []*dto.MetricFamily {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if elapsed := now.Sub(p.last); elapsed > 0 {
		for i, one := range p.states {
			p.now[i] = one.next(now.Sub(p.began), elapsed)
		}
		p.last = now
	}
	byName := map[string]*dto.MetricFamily{}
	var families []*dto.MetricFamily
	for i, one := range p.states {
		if pagePath(one.labels) != path {
			continue
		}
		name := one.labels.Get(model.MetricNameLabel)
		f := byName[name]
		if f == nil {
			f = &dto.MetricFamily{Name: &name, Help: proto.String("A scenario's."), Type: one.exposed().Enum()}
			byName[name] = f
			families = append(families, f)
		}
		f.Metric = append(f.Metric, one.expose(p.now[i]))
	}
	return families
}

// exposed is the type of the series' metric.
func (s *state) exposed() dto.MetricType {
	switch s.kind {
	case "":
		return dto.MetricType_GAUGE
	case "counter":
		return dto.MetricType_COUNTER
	}
	return dto.MetricType_HISTOGRAM
}

// expose returns a sample as an exporter exposes it.
func (s *state) expose(now sample) *dto.Metric {
	m := &dto.Metric{}
	s.labels.Range(func(l labels.Label) {
		if l.Name != model.MetricNameLabel {
			m.Label = append(m.Label, &dto.LabelPair{Name: &l.Name, Value: &l.Value})
		}
	})
	switch s.exposed() {
	case dto.MetricType_GAUGE:
		m.Gauge = &dto.Gauge{Value: &now.number}
	case dto.MetricType_COUNTER:
		m.Counter = &dto.Counter{Value: &now.number}
	default:
		m.Histogram = s.exposeHistogram(now)
	}
	return m
}

// exposeHistogram divides a histogram's whole numbers as an exporter does: how many are at most a bound, and for native
// buckets each one's difference from the one before.
func (s *state) exposeHistogram(now sample) *dto.Histogram {
	h := now.histogram
	exposed := &dto.Histogram{SampleCount: proto.Uint64(uint64(h.Count)), SampleSum: proto.Float64(h.Sum)}
	for _, b := range classic(s.labels.Get(model.MetricNameLabel), h) {
		exposed.Bucket = append(exposed.Bucket, &dto.Bucket{UpperBound: &b.bound, CumulativeCount: proto.Uint64(uint64(b.count))})
	}
	if s.kind == "custom" {
		return exposed
	}
	exposed.Schema, exposed.ZeroThreshold, exposed.ZeroCount = proto.Int32(h.Schema), proto.Float64(h.ZeroThreshold), proto.Uint64(0)
	for _, span := range h.PositiveSpans {
		exposed.PositiveSpan = append(exposed.PositiveSpan, &dto.BucketSpan{Offset: proto.Int32(span.Offset), Length: proto.Uint32(span.Length)})
	}
	before := 0.0
	for _, n := range h.PositiveBuckets {
		exposed.PositiveDelta = append(exposed.PositiveDelta, int64(n-before))
		before = n
	}
	return exposed
}
