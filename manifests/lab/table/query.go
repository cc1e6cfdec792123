package table

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Values holds a table's numbers by column and storage class.
type Values []map[string]float64

// Prometheus is where a table's numbers come from; it asks nothing else.
type Prometheus struct{ api promv1.API }

// NewPrometheus returns a client of the Prometheus at url.
func NewPrometheus(url string) (*Prometheus, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &Prometheus{promv1.NewAPI(client)}, nil
}

// Fill asks for every column's values, as of now.
func (p *Prometheus) Fill(ctx context.Context, columns []Column, window time.Duration) (Values, error) {
	now := time.Now()
	values := make(Values, len(columns))
	for i, c := range columns {
		var err error
		if values[i], err = p.byClass(ctx, c.Expr, window, now); err != nil {
			return nil, fmt.Errorf("column %s %s: %w", c.Group, c.Title, err)
		}
	}
	return values, nil
}

// Steady says whether the query steady answers 1 for every class.
func (p *Prometheus) Steady(ctx context.Context, steady string, window time.Duration, classes []string) (bool, error) {
	values, err := p.byClass(ctx, steady, window, time.Now())
	if err != nil {
		return false, fmt.Errorf("steady: %w", err)
	}
	for _, class := range classes {
		if values[class] != 1 {
			return false, nil
		}
	}
	return true, nil
}

// byClass asks a query that answers with one value per storage class.
func (p *Prometheus) byClass(ctx context.Context, expr string, window time.Duration, at time.Time) (map[string]float64, error) {
	expr = strings.ReplaceAll(expr, "$window", model.Duration(window).String())
	answer, _, err := p.api.Query(ctx, expr, at)
	if err != nil {
		return nil, err
	}
	vector, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the query answers with a %s, not with a value per class", answer.Type())
	}
	values := map[string]float64{}
	for _, sample := range vector {
		values[string(sample.Metric[classLabel])] = float64(sample.Value)
	}
	return values, nil
}

// Missing lists, in words, the cells that have no number yet.
func Missing(columns []Column, values Values, classes []string) []string {
	var missing []string
	for _, class := range classes {
		for i, c := range columns {
			if v, ok := values[i][class]; !c.Optional && (!ok || math.IsNaN(v)) {
				missing = append(missing, fmt.Sprintf("%s: %s %s", class, c.Group, c.Title))
			}
		}
	}
	return missing
}
