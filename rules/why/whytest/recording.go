// Package whytest is a recorded lab for tests of findings in words: its series, and Prometheus' own engine to query
// them.
package whytest

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"

	"github.com/plumbline/plumbline/rules/stored"
)

// Recording is what a Prometheus has recorded, queried by Prometheus' own engine.
type Recording struct {
	// Classic makes histograms classic ones, with a bucket for each power of two.
	Classic bool
	// Cluster is the label cluster of what is recorded from now on; without it if empty.
	Cluster string
	engine  *promql.Engine
	series  []storage.Series
}

// The recording has a sample every two seconds, up to its end.
const (
	recordingEvery = 2 * time.Second
	recordingSize  = 60
)

// End is the time of the last sample.
var End = time.Unix(1_800_000_000, 0)

// NewRecording returns an empty one.
func NewRecording() *Recording {
	return &Recording{engine: promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute,
		NoStepSubqueryIntervalFn: func(int64) int64 { return 2000 }})}
}

// Add records a series given as a metric with labels: value of each sample.
func (r *Recording) Add(metric string, sample func(i int, s *Point)) { r.add(metric, nil, sample) }

// add is Add with samples of before.
func (r *Recording) add(metric string, samples []chunks.Sample, sample func(i int, s *Point)) {
	lset := parse(metric)
	if r.Cluster != "" {
		lset = labels.NewBuilder(lset).Set("cluster", r.Cluster).Labels()
	}
	for i := range recordingSize {
		s := &Point{t: End.Add(-time.Duration(recordingSize-1-i) * recordingEvery).UnixMilli()}
		sample(i, s)
		samples = append(samples, s)
	}
	r.series = append(r.series, storage.NewListSeries(lset, samples))
}

// Gauge records a value that stays.
func (r *Recording) Gauge(metric string, value float64) {
	r.Add(metric, func(_ int, s *Point) { s.Value = value })
}

// Counter records a counter that grows by so much a second.
func (r *Recording) Counter(metric string, perSecond float64) {
	r.Add(metric, func(i int, s *Point) { s.Value = float64(i) * recordingEvery.Seconds() * perSecond })
}

// CounterThen records a counter that grew by before a second in the hour before the last one, and by perSecond since the
// recording begins.
func (r *Recording) CounterThen(metric string, before, perSecond float64) {
	var samples []chunks.Sample
	const every, hour = 30 * time.Second, time.Hour
	for ago := 2 * hour; ago >= hour; ago -= every {
		samples = append(samples, &Point{t: End.Add(-ago).UnixMilli(), Value: (2*hour - ago).Seconds() * before})
	}
	r.add(metric, samples, func(i int, s *Point) { s.Value = hour.Seconds()*before + float64(i)*recordingEvery.Seconds()*perSecond })
}

// Times records a histogram of so many operations a second, all of which take as long.
func (r *Recording) Times(metric string, perSecond, mean float64) {
	if r.Classic {
		r.classicTimes(metric, perSecond, mean)
		return
	}
	const schema = 3
	bucket := int32(math.Ceil(math.Log2(mean) * 8))
	r.Add(metric, func(i int, s *Point) {
		n := float64(i) * recordingEvery.Seconds() * perSecond
		s.h = &histogram.FloatHistogram{Schema: schema, Count: n, Sum: n * mean,
			PositiveSpans: []histogram.Span{{Offset: bucket, Length: 1}}, PositiveBuckets: []float64{n}}
	})
}

// classicTimes records the parts of a classic histogram.
func (r *Recording) classicTimes(metric string, perSecond, mean float64) {
	name, labels, _ := strings.Cut(metric, "{")
	r.Counter(name+"_count{"+labels, perSecond)
	r.Counter(name+"_sum{"+labels, perSecond*mean)
	for power := -14; power <= 5; power++ {
		bound := math.Exp2(float64(power))
		below := perSecond
		if mean > bound {
			below = 0
		}
		r.Counter(fmt.Sprintf("%s_bucket{le=%q,%s", name, strconv.FormatFloat(bound, 'g', -1, 64), labels), below)
	}
	r.Counter(name+`_bucket{le="+Inf",`+labels, perSecond)
}

// Without takes away the series whose names begin so.
func (r *Recording) Without(prefixes ...string) {
	r.series = slices.DeleteFunc(r.series, func(s storage.Series) bool {
		return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s.Labels().Get(model.MetricNameLabel), p) })
	})
}

// MissScrape makes the last sample of each series whose name begins so a staleness marker, as a scrape that fails does.
func (r *Recording) MissScrape(prefixes ...string) {
	for i, s := range r.series {
		name := s.Labels().Get(model.MetricNameLabel)
		if !slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) }) {
			continue
		}
		var samples []chunks.Sample
		for at := s.Iterator(nil); at.Next() == chunkenc.ValFloat; {
			t, v := at.At()
			samples = append(samples, &Point{t: t, Value: v})
		}
		samples[len(samples)-1].(*Point).Value = math.Float64frombits(value.StaleNaN)
		r.series[i] = storage.NewListSeries(s.Labels(), samples)
	}
}

// parse reads name{label="value",…}.
func parse(metric string) labels.Labels {
	matchers, err := parser.NewParser(parser.Options{}).ParseMetricSelector(metric)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", metric, err))
	}
	b := labels.NewBuilder(labels.EmptyLabels())
	for _, m := range matchers {
		b.Set(m.Name, m.Value)
	}
	return b.Labels()
}

// Query makes a recording an API.
func (r *Recording) Query(ctx context.Context, query string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	v, err := stored.Find(r.find).Query(ctx, r.engine, query, at)
	return v, nil, err
}

// find is stored.Find: all of a recording is in every queried time range.
func (r *Recording) find(_, _ int64, matchers []*labels.Matcher) []storage.Series {
	return stored.Select(r.series, matchers)
}

// Point is a sample: a value or a histogram.
type Point struct {
	t     int64
	Value float64
	h     *histogram.FloatHistogram
}

// T and the rest are chunks.Sample's.
func (p *Point) T() int64                { return p.t }
func (p *Point) ST() int64               { return 0 }
func (p *Point) F() float64              { return p.Value }
func (p *Point) H() *histogram.Histogram { return nil }
func (p *Point) FH() *histogram.FloatHistogram {
	if p.h == nil {
		return nil
	}
	return p.h.Copy() // the engine computes in what it is given
}
func (p *Point) Copy() chunks.Sample { c := *p; return &c }
func (p *Point) Type() chunkenc.ValueType {
	if p.h != nil {
		return chunkenc.ValFloatHistogram
	}
	return chunkenc.ValFloat
}

// Handler serves a recording as Prometheus' API does: queries, and the alerts of its series ALERTS, with
// the annotations given by name.
func (r *Recording) Handler(annotations map[string]map[string]string) http.Handler {
	answer := func(w http.ResponseWriter, data any, err error) {
		body := map[string]any{"status": "success", "data": data}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			body = map[string]any{"status": "error", "errorType": "bad_data", "error": err.Error()}
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(body)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/v1/query", func(w http.ResponseWriter, q *http.Request) {
		v, _, err := r.Query(q.Context(), q.FormValue("query"), End)
		if v == nil {
			v = model.Vector{}
		}
		answer(w, map[string]any{"resultType": v.Type(), "result": v}, err)
	})
	mux.HandleFunc("GET /api/v1/alerts", func(w http.ResponseWriter, q *http.Request) {
		v, _, err := r.Query(q.Context(), `ALERTS{alertstate="firing"}`, End)
		alerts := []any{}
		if vector, ok := v.(model.Vector); ok {
			for _, s := range vector {
				alerts = append(alerts, map[string]any{"state": "firing", "labels": s.Metric, "annotations": annotations[string(s.Metric["alertname"])], "activeAt": End, "value": "1e+00"})
			}
		}
		answer(w, map[string]any{"alerts": alerts}, err)
	})
	return mux
}
