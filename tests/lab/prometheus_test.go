package lab

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// ask returns the answer of an instant query.
func ask(t *testing.T, url, expr string) model.Vector {
	t.Helper()
	v, err := query(url, expr)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func query(url, expr string) (model.Vector, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	answer, _, err := promv1.NewAPI(client).Query(ctx, expr, time.Now())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	v, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s answers with a %s", expr, answer.Type())
	}
	return v, nil
}

// number returns the one value an expression has.
func number(url, expr string) (float64, error) {
	v, err := query(url, expr)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 {
		return 0, fmt.Errorf("%s has %d values, want 1", expr, len(v))
	}
	return float64(v[0].Value), nil
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
