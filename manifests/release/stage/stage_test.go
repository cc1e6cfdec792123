package stage

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/tests/testkit"
)

// template renders a chart.
func template(t *testing.T, chart string, values ...string) (string, error) {
	t.Helper()
	arguments := []string{"template", "plumbline", chart, "--set=image.registry=registry.example.org/plumbline"}
	for _, v := range values {
		arguments = append(arguments, "--set="+v)
	}
	text, err := exec.Command(testkit.Tool(t, "helm"), arguments...).CombinedOutput()
	return string(text), err
}

// The packaged chart has rules and dashboards for every kind of histogram; the checkout's has those for native ones,
// and names where the others are.
func TestChart(t *testing.T) {
	checkout := filepath.Join(testkit.Root(), "manifests", "chart")
	files, err := Chart(testkit.Tool(t, "helm"), checkout)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := Write(folder, files); err != nil {
		t.Fatal(err)
	}
	packed := filepath.Join(folder, "plumbline")
	rules, _ := filepath.Glob(filepath.Join(testkit.Root(), "rules", "*.rules.yaml"))
	boards, _ := filepath.Glob(filepath.Join(testkit.Root(), "dashboards", "*.json"))
	const (
		part   = "ebpf_exporter_blkio_total_seconds_bucket"
		native = "histogram_avg"
	)
	for name, c := range map[string]struct {
		chart         string
		values        []string
		rules, boards int
		has, not      []string
	}{
		"checkout":           {checkout, nil, len(rules), len(boards), []string{native, "scrapeNativeHistograms: true"}, []string{"record: device:block_total_seconds:rate5m_bucket"}},
		"native":             {packed, nil, len(rules), len(boards), []string{native, "scrapeNativeHistograms: true"}, []string{"record: device:block_total_seconds:rate5m_bucket"}},
		"either":             {packed, []string{"prometheus.histograms=either"}, len(rules), len(boards), []string{part, native, "scrapeNativeHistograms: true"}, nil},
		"classic":            {packed, []string{"prometheus.histograms=classic"}, len(rules), len(boards), []string{part, "scrapeNativeHistograms: false"}, []string{native, "histogram_count"}},
		"classic rules":      {packed, []string{"prometheus.histograms=classic", "dashboards.enabled=false"}, len(rules), 0, []string{part}, []string{native, "histogram_count"}},
		"classic dashboards": {packed, []string{"prometheus.histograms=classic", "rules.enabled=false"}, 0, len(boards), []string{"plumbline_query_duration_seconds_count"}, []string{native, "histogram_count"}},
		"node's alerts":      {checkout, []string{"rules.nodeAlerts=true"}, len(rules) + 1, len(boards), []string{"alert: VolumeFillingUp"}, nil},
		"no operator": {checkout, []string{"prometheus.operator=false", "rules.nodeAlerts=true"}, 0, len(boards),
			[]string{"name: plumbline-rules\n", "  volume.rules.yaml: |\n", "  optional-kube-prometheus-stack.rules.yaml: |\n"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := template(t, c.chart, c.values...)
			if err != nil {
				t.Fatal(text)
			}
			if n := strings.Count(text, "\nkind: PrometheusRule\n"); n != c.rules {
				t.Errorf("%d objects of rules, want %d", n, c.rules)
			}
			if n := strings.Count(text, "\n  name: plumbline-dashboard-"); n != c.boards {
				t.Errorf("%d dashboards, want %d", n, c.boards)
			}
			for _, want := range c.has {
				if !strings.Contains(text, want) {
					t.Errorf("no %q", want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(text, not) {
					t.Errorf("has %q", not)
				}
			}
		})
	}
	for value, folder := range map[string]string{"prometheus.histograms=either": "rules/either", "prometheus.histograms=classic": "rules/classic",
		"rules.enabled=false,prometheus.histograms=classic": "dashboards/classic"} {
		text, err := template(t, checkout, value)
		_, kind, _ := strings.Cut(value, "histograms=")
		want := "prometheus.histograms=" + kind + ": this chart lacks the folder " + folder + "; make chart writes one for native, either and classic into build/chart"
		if err == nil || !strings.Contains(text, want) {
			t.Errorf("%s: want %q: %v %.500s", value, want, err, text)
		}
	}
}

// Each file of rules and each dashboard is there for every kind of histograms.
func TestFiles(t *testing.T) {
	files, err := Files()
	if err != nil {
		t.Fatal(err)
	}
	for folder, want := range map[string]string{"rules/either": "rules", "rules/classic": "rules", "dashboards/classic": "dashboards"} {
		for name := range files {
			if filepath.Dir(name) == want && len(files[folder+"/"+filepath.Base(name)]) == 0 {
				t.Errorf("%s lacks %s", folder, filepath.Base(name))
			}
		}
	}
	if len(files) < 60 {
		t.Errorf("%d files", len(files))
	}
}
