package blockio_test

import (
	"fmt"
	"io"
	"math"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// exporter is a running ebpf_exporter with our configuration.
type exporter struct{ url string }

// exporterCommand prepares ebpf_exporter as the user nobody with the two capabilities it needs.
func exporterCommand(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	testkit.NeedBPF(t)
	testkit.Tool(t, "ebpf_exporter")
	return rig.BlockioCommand(t, diskTempDir(t), args...)
}

// startExporter runs ebpf_exporter until the test ends and waits until it serves.
func startExporter(t *testing.T) *exporter {
	t.Helper()
	testkit.NeedBPF(t)
	testkit.Tool(t, "ebpf_exporter")
	url, _ := rig.StartBlockio(t)
	e := &exporter{url: url}
	e.scrape(t)
	return e
}

// scrape reads all metrics. The socket listens before the exporter does, so the first one
// waits for it.
func (e *exporter) scrape(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	client := http.Client{Timeout: testkit.DefaultTimeout}
	resp, err := client.Get(e.url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("scrape: %s: %s", resp.Status, body)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// series is one histogram of one device and operation.
type series struct{ histogram, op string }

// value is what a histogram counted: the sum in nanoseconds is exact.
type value struct {
	count, ns uint64
	buckets   []*dto.Bucket
}

// device reads the histograms of one device, and its unsplit requests as histogram "unsplit".
func (e *exporter) device(t *testing.T, device string) map[series]value {
	t.Helper()
	families := e.scrape(t)
	values := map[series]value{}
	for _, name := range []string{"queue", "device", "total"} {
		for _, m := range families["ebpf_exporter_blkio_"+name+"_seconds"].GetMetric() {
			if labels := labelsOf(m); labels["device"] == device {
				h := m.GetHistogram()
				values[series{name, labels["op"]}] = value{h.GetSampleCount(), uint64(math.Round(h.GetSampleSum() * 1e9)), h.GetBucket()}
			}
		}
	}
	for _, m := range families["ebpf_exporter_blkio_unsplit_total"].GetMetric() {
		if labels := labelsOf(m); labels["device"] == device {
			values[series{"unsplit", labels["op"]}] = value{count: uint64(m.GetCounter().GetValue())}
		}
	}
	for _, m := range families["ebpf_exporter_blkio_dropped_total"].GetMetric() {
		if n := m.GetCounter().GetValue(); n != 0 {
			t.Errorf("%v lost for reason %s", n, labelsOf(m)["reason"])
		}
	}
	return values
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, l := range m.GetLabel() {
		labels[l.GetName()] = l.GetValue()
	}
	return labels
}

// reached waits until a device's requests by operation are want, no more and no fewer, and
// returns its histograms.
func (e *exporter) reached(t *testing.T, device string, want map[string]uint64, deadline time.Duration) (map[series]value, error) {
	t.Helper()
	var values map[series]value
	err := testkit.Await(deadline, func() error {
		values = e.device(t, device)
		got := map[string]uint64{}
		for s, v := range values {
			if s.histogram == "total" {
				got[s.op] = v.count
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%s: requests %v, want %v", device, got, want)
		}
		return nil
	})
	if err == nil {
		values = e.device(t, device) // the other two histograms may have been read before this one was written
	}
	return values, err
}

// expect is reached for few requests, which must be there.
func (e *exporter) expect(t *testing.T, device string, want map[string]uint64) map[series]value {
	t.Helper()
	values, err := e.reached(t, device, want, testkit.DefaultTimeout)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// checkSplit checks that queue and device time add up to the total, request by request.
func checkSplit(t *testing.T, values map[series]value) {
	t.Helper()
	for s, total := range values {
		if s.histogram != "total" {
			continue
		}
		queue, device := values[series{"queue", s.op}], values[series{"device", s.op}]
		if queue.count != total.count || device.count != total.count {
			t.Errorf("%s: %d queue, %d device and %d total observations", s.op, queue.count, device.count, total.count)
		}
		if queue.ns+device.ns != total.ns {
			t.Errorf("%s: queue %d ns + device %d ns is not total %d ns", s.op, queue.ns, device.ns, total.ns)
		}
		if device.ns == 0 {
			t.Errorf("%s: no time in the device", s.op)
		}
	}
}

func TestLoadsWithTwoCapabilities(t *testing.T) {
	out, err := exporterCommand(t, "--config.check").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Config check successful") {
		t.Errorf("config check: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		// Before Linux 6.5 there is no block_io_done, and its program is not needed.
		if strings.Contains(line, "Failed to attach") && (rig.HasIODone(t) || !strings.Contains(line, `"blkio_io_done"`)) {
			t.Errorf("not all programs attached:\n%s", out)
		}
	}
}
