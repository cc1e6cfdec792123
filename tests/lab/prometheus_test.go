package lab

import (
	"context"
	"net/http"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/promapi"
)

// mustQuery returns the result of an instant query.
func mustQuery(t *testing.T, url, expr string) model.Vector {
	t.Helper()
	v, err := query(url, expr)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func query(url, expr string) (model.Vector, error) {
	server, err := promapi.At(url)
	if err != nil {
		return nil, err
	}
	return server.Vector(context.Background(), expr)
}

// number returns the one value an expression has.
func number(url, expr string) (float64, error) {
	server, err := promapi.At(url)
	if err != nil {
		return 0, err
	}
	return server.Number(context.Background(), expr)
}

// scrape reads an exporter itself, for comparisons that a scrape interval would blur.
func scrape(t *testing.T, url string) map[string]*dto.MetricFamily {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(response.Body)
	if err != nil {
		t.Fatalf("%s: %v", url, err)
	}
	return families
}

// metric returns the metric of a family that has the given labels.
func metric(t *testing.T, families map[string]*dto.MetricFamily, name string, labels map[string]string) *dto.Metric {
	t.Helper()
	family := families[name]
	for _, m := range family.GetMetric() {
		matched := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				matched++
			}
		}
		if matched == len(labels) {
			return m
		}
	}
	t.Fatalf("no %s with %v", name, labels)
	return nil
}
