package main

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"google.golang.org/protobuf/proto"

	"github.com/plumbline/plumbline/tests/shape"
)

// cluster serves /JOB/NODE: what the job's exporter on that node would export.
type cluster struct {
	shape   *shape.Shape
	perNode int
	// every: one volume in so many has a database.
	every int
	began time.Time
}

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	job, node, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	if _, ok := shape.Jobs[job]; !ok || node == "" {
		http.NotFound(w, r)
		return
	}
	// Counters grow by their value in ten minutes.
	growth := 1 + time.Since(c.began).Seconds()/600
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	w.Header().Set("Content-Type", string(format))
	encoder := expfmt.NewEncoder(w, format)
	for _, f := range c.families(job, node, growth) {
		if err := encoder.Encode(f); err != nil {
			slog.Warn("a scrape was cut short", "path", r.URL.Path, "err", err)
			return
		}
	}
}

func (c *cluster) families(job, node string, growth float64) []*dto.MetricFamily {
	var families []*dto.MetricFamily
	byName := map[string]*dto.MetricFamily{}
	family := func(f *dto.MetricFamily) *dto.MetricFamily {
		if byName[f.GetName()] == nil {
			n := &dto.MetricFamily{Name: f.Name, Help: f.Help, Type: f.Type, Unit: f.Unit}
			byName[f.GetName()] = n
			families = append(families, n)
		}
		return byName[f.GetName()]
	}
	for _, f := range c.shape.Node[job] {
		to := family(f)
		for _, m := range f.Metric {
			to.Metric = append(to.Metric, grown(m, growth))
		}
	}
	for _, f := range c.shape.Volume[job] {
		to := family(f)
		for _, m := range f.Metric {
			value := grown(m, growth)
			server := slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == "server" })
			for i := range c.perNode {
				if server && i%c.every != 0 {
					continue
				}
				copied := &dto.Metric{Gauge: value.Gauge, Counter: value.Counter, Summary: value.Summary, Untyped: value.Untyped, Histogram: value.Histogram}
				for _, l := range m.Label {
					copied.Label = append(copied.Label, &dto.LabelPair{Name: l.Name, Value: proto.String(c.rename(l, node, i))})
				}
				to.Metric = append(to.Metric, copied)
			}
		}
	}
	return families
}

// rename gives each volume, its server, replicas and device names of their own.
func (c *cluster) rename(l *dto.LabelPair, node string, i int) string {
	switch {
	case l.GetName() == "storageclass":
		return l.GetValue()
	case l.GetName() == "device" && slices.Contains(c.shape.Devices, l.GetValue()):
		return fmt.Sprintf("sd%d", i)
	}
	return strings.ReplaceAll(l.GetValue(), c.shape.Class, fmt.Sprintf("%s-%d", node, i))
}

// grown returns a metric whose counts have grown; its labels are the same.
func grown(m *dto.Metric, by float64) *dto.Metric {
	n := &dto.Metric{Label: m.Label, Gauge: m.Gauge, Untyped: m.Untyped, Summary: m.Summary}
	if m.Counter != nil {
		n.Counter = &dto.Counter{Value: proto.Float64(m.Counter.GetValue() * by)}
	}
	if m.Histogram != nil {
		n.Histogram = grownHistogram(m.Histogram, by)
	}
	return n
}

func grownHistogram(h *dto.Histogram, by float64) *dto.Histogram {
	scale := func(n uint64) uint64 { return uint64(float64(n) * by) }
	n := &dto.Histogram{
		SampleCount: proto.Uint64(scale(h.GetSampleCount())), SampleSum: proto.Float64(h.GetSampleSum() * by),
		Schema: h.Schema, ZeroThreshold: h.ZeroThreshold, PositiveSpan: h.PositiveSpan,
	}
	for _, b := range h.Bucket {
		n.Bucket = append(n.Bucket, &dto.Bucket{CumulativeCount: proto.Uint64(scale(b.GetCumulativeCount())), UpperBound: b.UpperBound})
	}
	if h.Schema == nil {
		return n
	}
	// A native histogram's buckets are differences, and their sum must be the count.
	n.ZeroCount = proto.Uint64(scale(h.GetZeroCount()))
	total := n.GetZeroCount()
	var old, last int64
	for _, delta := range h.PositiveDelta {
		old += delta
		now := int64(scale(uint64(old)))
		n.PositiveDelta = append(n.PositiveDelta, now-last)
		last = now
		total += uint64(now)
	}
	n.SampleCount = proto.Uint64(total)
	for _, b := range n.Bucket {
		b.CumulativeCount = proto.Uint64(min(b.GetCumulativeCount(), total))
	}
	return n
}
