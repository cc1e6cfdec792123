package exporterkit

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

type fake struct {
	value float64
	err   error
}

var fakeDesc = prometheus.NewDesc("fake_value", "A value.", []string{"from"}, nil)

func (f fake) Update(ch chan<- prometheus.Metric) error {
	ch <- prometheus.MustNewConstMetric(fakeDesc, prometheus.GaugeValue, f.value, "fake")
	return f.err
}

// A collector that fails keeps what it sent, is marked as failed, and harms no other.
func TestSetKeepsOthersWhenOneFails(t *testing.T) {
	set := NewSet(slog.New(slog.DiscardHandler))
	set.Add("broken", fake{7, errors.New("no such device")})
	set.Add("idle", noData{})
	registry := prometheus.NewRegistry()
	registry.MustRegister(set)
	want := `
# HELP fake_value A value.
# TYPE fake_value gauge
fake_value{from="fake"} 7
# HELP plumbline_scrape_collector_success Whether a collector answered this scrape without an error: 1 yes, 0 no.
# TYPE plumbline_scrape_collector_success gauge
plumbline_scrape_collector_success{collector="broken"} 0
plumbline_scrape_collector_success{collector="idle"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "fake_value", "plumbline_scrape_collector_success"); err != nil {
		t.Error(err)
	}
}

type noData struct{}

func (noData) Update(chan<- prometheus.Metric) error { return ErrNoData }
