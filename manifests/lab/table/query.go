package table

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Values holds a table's numbers by column and row; a row's name is its labels' values.
type Values []map[string]float64

// Prometheus is where a table's numbers come from; it queries nothing else.
type Prometheus struct{ api promv1.API }

// NewPrometheus returns a client of the Prometheus at url.
func NewPrometheus(url string) (*Prometheus, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &Prometheus{promv1.NewAPI(client)}, nil
}

// Fill queries every cell of a table, as of now.
func (p *Prometheus) Fill(ctx context.Context, t Table, window time.Duration) (Values, error) {
	now := time.Now()
	values := make(Values, len(t.Columns))
	for i, c := range t.Columns {
		var err error
		if values[i], err = p.byRow(ctx, c.Expr, t.By, window, now); err != nil {
			return nil, fmt.Errorf("column %s %s: %w", c.Group, c.Title, err)
		}
	}
	return values, nil
}

// Steady reports whether the query steady returns 1 for every class.
func (p *Prometheus) Steady(ctx context.Context, steady string, window time.Duration, classes []string) (bool, error) {
	values, err := p.byRow(ctx, steady, []model.LabelName{classLabel}, window, time.Now())
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

// byRow runs a query that returns one value per row.
func (p *Prometheus) byRow(ctx context.Context, expr string, by []model.LabelName, window time.Duration, at time.Time) (map[string]float64, error) {
	expr = strings.ReplaceAll(expr, "$window", model.Duration(window).String())
	answer, _, err := p.api.Query(ctx, expr, at)
	if err != nil {
		return nil, err
	}
	vector, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the query answers with a %s, not with a value per row", answer.Type())
	}
	values := map[string]float64{}
	for _, sample := range vector {
		name := make([]string, 0, len(by))
		for _, label := range by {
			name = append(name, string(sample.Metric[label]))
		}
		values[strings.Join(name, " ")] = float64(sample.Value)
	}
	return values, nil
}

// rows lists a table's rows: the classes, or whatever the queries answered for.
func rows(t Table, values Values, classes []string) []string {
	if t.perClass() {
		return classes
	}
	names := map[string]bool{}
	for _, column := range values {
		for name := range column {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Missing lists, in words, the cells that have no number yet.
func Missing(t Table, values Values, classes []string) []string {
	var missing []string
	for _, row := range rows(t, values, classes) {
		for i, c := range t.Columns {
			if v, ok := values[i][row]; !c.Optional && (!ok || math.IsNaN(v)) {
				missing = append(missing, fmt.Sprintf("%s: %s %s", row, c.Group, c.Title))
			}
		}
	}
	return missing
}
