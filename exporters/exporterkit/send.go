package exporterkit

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Gauge sends a gauge whose labels may come from others: they are made fit for it, see label.Value.
func Gauge(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	send(ch, d, prometheus.GaugeValue, value, labels)
}

// Counter sends a counter, as Gauge does.
func Counter(ch chan<- prometheus.Metric, d *prometheus.Desc, value float64, labels ...string) {
	send(ch, d, prometheus.CounterValue, value, labels)
}

func send(ch chan<- prometheus.Metric, d *prometheus.Desc, kind prometheus.ValueType, value float64, labels []string) {
	fit := make([]string, len(labels))
	for i, l := range labels {
		fit[i] = label.Value(l)
	}
	ch <- &sample{d, kind, value, fit}
}
