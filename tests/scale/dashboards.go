package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/results/rows"
)

// selection is what a user of the dashboards has chosen from their visible variables.
type selection struct {
	name   string
	choice map[string][]string
}

// selections are one volume, as seen by a user who was paged, and everything.
func selections(class string) []selection {
	return []selection{
		{"one volume", map[string][]string{"storageclass": {class}, "pvc": {"data-node-0-0"}, "server": {"node-0-0"}}},
		{"everything", nil},
	}
}

// chosen are the values of each page's variables, by the page: of a selection, and of what Prometheus has from a moment
// on, as Grafana queries it.
func (p *prometheus) chosen(ctx context.Context, variables map[string][]dashboards.Variable, choice map[string][]string, from time.Time) (map[string]map[string]string, error) {
	all := map[string]map[string]string{}
	for page, list := range variables {
		values, err := dashboards.Chosen(list, choice, func(selector, label string) ([]string, error) {
			found, _, err := p.LabelValues(ctx, label, []string{selector}, from, time.Now())
			var names []string
			for _, v := range found {
				names = append(names, string(v))
			}
			return names, err
		})
		if err != nil {
			return nil, fmt.Errorf("page %s: %w", page, err)
		}
		all[page] = values
	}
	return all, nil
}

// queryTimes is how long the dashboards' queries took for a selection.
type queryTimes struct {
	selection string
	seconds   []float64
	// slowest is the place of the slowest query, page the slowest page: the sum of its queries.
	slowest, page string
	pageSeconds   float64
	failed        []string
}

// timeQueries makes each query of the dashboards, one after the other, as Grafana does: over the time measured, or
// at its end.
func (p *prometheus) timeQueries(ctx context.Context, o options, class string) ([]queryTimes, error) {
	all, err := dashboards.Expressions(o.dashboards)
	if err != nil {
		return nil, err
	}
	intervals := dashboards.Intervals{Rate: (4 * o.interval).String(), Range: o.measure.String()}
	variables, err := dashboards.Variables(o.dashboards)
	if err != nil {
		return nil, err
	}
	var results []queryTimes
	for _, s := range selections(class) {
		values, err := p.chosen(ctx, variables, s.choice, time.Now().Add(-o.measure))
		if err != nil {
			return nil, err
		}
		a := queryTimes{selection: s.name}
		pages, most := map[string]float64{}, 0.0
		end := time.Now()
		window := promv1.Range{Start: end.Add(-o.measure), End: end, Step: o.interval / 2}
		for _, e := range all {
			began := time.Now()
			if e.Instant {
				_, _, err = p.Query(ctx, e.Fill(intervals, values[e.Dashboard]), end)
			} else {
				_, _, err = p.QueryRange(ctx, e.Fill(intervals, values[e.Dashboard]), window)
			}
			took := time.Since(began).Seconds()
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if err != nil {
				slog.Warn("a dashboard's query failed", "at", e.Where(), "err", err)
				a.failed = append(a.failed, e.Where())
			}
			a.seconds = append(a.seconds, took)
			if took > most {
				most, a.slowest = took, e.Where()
			}
			if pages[e.Dashboard] += took; pages[e.Dashboard] > a.pageSeconds {
				a.page, a.pageSeconds = e.Dashboard, pages[e.Dashboard]
			}
		}
		results = append(results, a)
	}
	return results, nil
}

func (a queryTimes) cells() []string {
	failed := "none"
	if len(a.failed) > 0 {
		failed = fmt.Sprintf("%d: %s", len(a.failed), strings.Join(a.failed, "; "))
	}
	return []string{
		"queries", fmt.Sprint(len(a.seconds)),
		"median", fmt.Sprintf("%.0f ms", 1e3*rows.Median(a.seconds)),
		"95 % within", fmt.Sprintf("%.2f s", rows.Quantile(a.seconds, 0.95)),
		"slowest", fmt.Sprintf("%.2f s (%s)", rows.Quantile(a.seconds, 1), a.slowest),
		"slowest page, its queries one after another", fmt.Sprintf("%.1f s (%s)", a.pageSeconds, a.page),
		"failed", failed,
	}
}
