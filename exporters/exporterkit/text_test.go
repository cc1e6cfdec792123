package exporterkit

import (
	"compress/gzip"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// odd sends what is hard to write, and what must be left out.
type odd struct{}

func (odd) Update(ch chan<- prometheus.Metric) error {
	d := prometheus.NewDesc("odd_value", "A \\ and\na line.", []string{"zone", "a_label"}, nil)
	for i, value := range []float64{0, 1.5, -3, 1e300, math.NaN(), math.Inf(1), math.Inf(-1), 1795822560.831} {
		Gauge(ch, d, value, `a "quote" \ and`+"\na line", string(rune('a'+i)))
	}
	Gauge(ch, d, 7, "is there", "twice")
	Gauge(ch, d, 8, "is there", "twice")
	Gauge(ch, d, 9, "too few")
	Counter(ch, d, 10, "another", "kind")
	Counter(ch, prometheus.NewDesc("odd_total", "Without labels.", nil, nil), 12345678901)
	Gauge(ch, prometheus.NewDesc("odd_const", "With a label of its own.", []string{"b"}, prometheus.Labels{"of": "all"}), 1, "x")
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("odd_other", "No sample.", []string{"b"}, nil), prometheus.GaugeValue, 2, "x")
	ch <- prometheus.MustNewConstMetric(prometheus.NewDesc("odd_other", "No sample.", []string{"b"}, nil), prometheus.GaugeValue, 3, "y")
	ch <- prometheus.MustNewConstHistogram(prometheus.NewDesc("odd_seconds", "A histogram.", nil, nil), 3, 4.5, map[float64]uint64{1: 2, 2: 3})
	return nil
}

// A large program's text is the same as client_golang's, compressed or not. A client that does not accept text gets the
// format it accepts.
func TestPlainText(t *testing.T) {
	fetch := func(large bool, header http.Header) (body string, got http.Header) {
		a := New("test", "Test.", "127.0.0.1:0")
		a.Large = large
		a.NewSet(slog.New(slog.DiscardHandler)).Add("odd", odd{})
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header = header
		a.metrics(slog.New(slog.DiscardHandler)).ServeHTTP(w, r)
		var text io.Reader = w.Body
		if w.Header().Get("Content-Encoding") == "gzip" {
			packed, err := gzip.NewReader(w.Body)
			if err != nil {
				t.Fatal(err)
			}
			text = packed
		}
		all, err := io.ReadAll(text)
		if err != nil {
			t.Fatal(err)
		}
		return string(all), w.Header()
	}
	lines := func(text string) (kept []string) {
		for line := range strings.Lines(text) {
			if strings.Contains(line, "odd") && !strings.Contains(line, "duration") {
				kept = append(kept, line)
			}
		}
		slices.Sort(kept)
		return kept
	}
	want, _ := fetch(false, http.Header{})
	for name, header := range map[string]http.Header{"plain": {}, "packed": {"Accept-Encoding": {"gzip"}},
		"Prometheus": {"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"}}} {
		got, answered := fetch(true, header)
		if !slices.Equal(lines(got), lines(want)) {
			t.Errorf("%s:\n%s\nwant\n%s", name, strings.Join(lines(got), ""), strings.Join(lines(want), ""))
		}
		if !strings.HasPrefix(answered.Get("Content-Type"), "text/plain; version=0.0.4") || !strings.Contains(got, "\ngo_goroutines ") {
			t.Errorf("%s: %s:\n%s", name, answered.Get("Content-Type"), got)
		}
	}
	if _, answered := fetch(true, http.Header{"Accept": {"application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"}}); !strings.Contains(answered.Get("Content-Type"), "protobuf") {
		t.Errorf("who takes protobuf alone gets %s", answered.Get("Content-Type"))
	}
}
