package collector

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/exporters/exporterkit"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// lab is one real Longhorn volume: engine and replicas as processes on loopback addresses.
type lab struct{ *rig.Volume }

// newLab starts a volume with n replicas.
func newLab(t *testing.T, n int) *lab {
	t.Helper()
	testkit.NeedRoot(t)
	testkit.Tool(t, "longhorn-engine")
	l := &lab{rig.NewVolume(t, n)}
	l.Start()
	return l
}

// target is the volume as a targets file would name it.
func (l *lab) target() Target {
	t := Target{Volume: l.Name, Engine: l.Address(), EngineName: l.Name + "-e-0", Backend: BackendV1}
	for _, r := range l.Replicas {
		t.Replicas = append(t.Replicas, ReplicaTarget{Name: r.Name, Address: r.Address, Directory: r.Dir})
	}
	return t
}

// watched is an exporter in this process: a fleet and its collectors behind a web server.
type watched struct {
	t     *testing.T
	fleet *Fleet
	url   string
	log   *bytes.Buffer
}

func exporterFor(t *testing.T, poll Poll, targets ...Target) *watched {
	t.Helper()
	return exporterWithTLS(t, poll, nil, targets...)
}

func exporterWithTLS(t *testing.T, poll Poll, config *tls.Config, targets ...Target) *watched {
	t.Helper()
	w := &watched{t: t, log: &bytes.Buffer{}}
	log := slog.New(slog.NewTextHandler(w.log, nil))
	ctx, cancel := context.WithCancel(context.Background())
	w.fleet = NewFleet(FleetOptions{Log: log, Poll: poll, Engines: true, Replicas: true, TLS: config})
	o := Options{Log: log, Node: "node-a", ProcFS: "/proc", SysFS: "/sys", RootFS: "/", Fleet: w.fleet}
	set := exporterkit.NewSetWithTimeout(log, testkit.DefaultTimeout)
	for _, e := range All() {
		if e.Name == "engine" || e.Name == "replica" {
			set.Add(e.Name, e.New(o))
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	w.url = server.URL
	t.Cleanup(func() {
		server.Close()
		w.fleet.Set(ctx, nil)
		cancel()
		if t.Failed() {
			t.Logf("exporter's log:\n%s", w.log)
		}
	})
	w.fleet.Set(ctx, targets)
	return w
}

// scrape returns the exposition and how long it took.
func (w *watched) scrape() (samples, time.Duration) {
	w.t.Helper()
	start := time.Now()
	response, err := http.Get(w.url)
	if err != nil {
		w.t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	took := time.Since(start)
	return parse(w.t, body), took
}

// samples maps series, as name{label="value",...} with sorted labels, to values.
type samples map[string]float64

func parse(t *testing.T, text []byte) samples {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	s := samples{}
	for name, f := range families {
		for _, m := range f.Metric {
			s[name+labels(m)] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return s
}

func labels(m *dto.Metric) string {
	var pairs []string
	for _, l := range m.Label {
		pairs = append(pairs, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	return "{" + strings.Join(pairs, ",") + "}"
}

// want fails unless every series has its value; NaN means "must be absent".
func (s samples) want(values map[string]float64) error {
	var wrong []error
	for series, value := range values {
		got, ok := s[series]
		switch {
		case value != value && ok:
			wrong = append(wrong, fmt.Errorf("%s is %v, should be absent", series, got))
		case value == value && !ok:
			wrong = append(wrong, fmt.Errorf("%s is absent, should be %v", series, value))
		case value == value && got != value:
			wrong = append(wrong, fmt.Errorf("%s is %v, should be %v", series, got, value))
		}
	}
	return errors.Join(wrong...)
}

// fio runs a job on the volume and returns its report.
func fio(t *testing.T, file string, args ...string) fioReport {
	t.Helper()
	cmd := exec.Command(testkit.Tool(t, "fio"), append([]string{"--output-format=json", "--name=job", "--filename=" + file,
		"--direct=1", fmt.Sprintf("--size=%d", rig.VolumeSize)}, args...)...)
	cmd.Dir = t.TempDir() // fio leaves a state file where it runs
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("fio: %v\n%s", err, output[max(0, len(output)-2000):])
	}
	var report fioReport
	if err := json.Unmarshal(output, &report); err != nil {
		t.Fatalf("fio's report: %v", err)
	}
	return report
}

type fioReport struct {
	Jobs []struct {
		Read, Write fioSide
	}
}

type fioSide struct {
	Ops     float64 `json:"total_ios"`
	Bytes   float64 `json:"io_bytes"`
	Latency struct {
		Mean float64 `json:"mean"`
	} `json:"lat_ns"`
}
