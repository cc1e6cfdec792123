package metricsdoc

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

var update = flag.Bool("update", false, "write METRICS.md instead of comparing with it")

// directories define metrics.
var directories = []string{"exporters", "loadgen"}

// METRICS.md agrees with the sources.
func TestMetricsFile(t *testing.T) {
	metrics, err := Scan(testkit.Root(), directories...)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(testkit.Root(), "METRICS.md")
	text := Render(metrics)
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	old, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(old) != text {
		t.Errorf("METRICS.md does not match the sources; run make generate\n%s", difference(string(old), text))
	}
}

func difference(old, text string) string {
	a, b := strings.Split(old, "\n"), strings.Split(text, "\n")
	var lines []string
	for _, l := range a {
		if !slices.Contains(b, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range b {
		if !slices.Contains(a, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return strings.Join(lines, "\n")
}

// Names and help texts keep to Prometheus' conventions.
func TestConventions(t *testing.T) {
	metrics, err := Scan(testkit.Root(), directories...)
	if err != nil {
		t.Fatal(err)
	}
	if len(metrics) < 100 {
		t.Fatalf("only %d metrics found; the scanner is blind", len(metrics))
	}
	name := regexp.MustCompile(`^(plumbline|loadgen|ebpf_exporter)_[a-z0-9_]+$`)
	for _, m := range metrics {
		problem := func(text string) { t.Errorf("%s (%s): %s", m.Name, m.Directory, text) }
		if !name.MatchString(m.Name) {
			problem("is not in the project's name space")
		}
		if m.Help == "" || !strings.HasSuffix(m.Help, ".") {
			problem("has no help text that ends in a full stop")
		}
		if (m.Type == "counter") != strings.HasSuffix(m.Name, "_total") {
			problem("is a " + m.Type + ", and only counters end in _total")
		}
		if strings.HasSuffix(m.Name, "_info") && m.Type != "gauge" {
			problem("is an info metric but no gauge")
		}
		for _, unit := range []string{"_milliseconds", "_ms", "_us", "_percent", "_kb", "_mb"} {
			if strings.HasSuffix(strings.TrimSuffix(m.Name, "_total"), unit) {
				problem("has no base unit")
			}
		}
	}
}

// The scanner sees through constants, joined strings, fields and uses.
func TestScan(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "x", "x.go"), `package x

import "github.com/prometheus/client_golang/prometheus"

const prefix = "plumbline_"

var labels = []string{"a", "b"}

// From somewhere.
var d = prometheus.NewDesc(prefix+"d_seconds", "Time "+"of d.", labels, nil)

type t struct{ h *prometheus.Desc }

func f(ch chan<- prometheus.Metric) {
	x := t{h: prometheus.NewDesc("plumbline_h_seconds", "H.", nil, nil)}
	ch <- prometheus.MustNewConstHistogram(x.h, 0, 0, nil)
	ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, 1)
	gauge := func(name, help string, more ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, append(labels[:2:2], more...))
	}
	_ = gauge("plumbline_g", "G.", "m")
	_ = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "plumbline_c_total", Help: "C."}, []string{"k"})
}

func descs(prefix, what string, labels []string) t {
	more := append(labels, "op")
	return t{h: prometheus.NewDesc(prefix+"_sum", "Sum of "+what+".", more, nil)}
}

var two = []t{descs("plumbline_one", "one", []string{"n"}), descs("plumbline_two", "two", labels)}
`)
	write(t, filepath.Join(root, "x", "x_test.go"), `package x; var _ = prometheus.NewDesc("plumbline_test", "No.", nil, nil)`)
	write(t, filepath.Join(root, "x", "testdata", "a.prom"), "# HELP plumbline_made_total Made.\n# TYPE plumbline_made_total counter\nplumbline_made_total{z=\"1\"} 1\n")
	metrics, err := Scan(root, "x")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range metrics {
		got = append(got, strings.Join([]string{m.Name, m.Type, strings.Join(m.Labels, ","), m.Help, m.Comment}, "|"))
	}
	slices.Sort(got)
	want := []string{
		"plumbline_c_total|counter|k|C.|",
		"plumbline_d_seconds|gauge|a,b|Time of d.|From somewhere.",
		"plumbline_g|gauge|a,b,m|G.|",
		"plumbline_h_seconds|histogram||H.|",
		"plumbline_made_total|counter|z|Made.|",
		"plumbline_one_sum|histogram|n,op|Sum of one.|",
		"plumbline_two_sum|histogram|a,b,op|Sum of two.|",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
