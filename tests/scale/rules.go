package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/plumbline/plumbline/tests/pause"
)

// slowRules is how many of the slowest rules are printed.
const slowRules = 25

// ruleCost is what one evaluation of a rule takes, in the mean of those seen.
type ruleCost struct {
	group, name, query string
	seconds            float64
	// perHour is what all evaluations of an hour take.
	perHour float64
}

// watchRules queries the latest evaluation of every rule repeatedly for a while: other evaluations may have run beside
// a single one. The most expensive per hour come first.
func (p *prometheus) watchRules(ctx context.Context, o options) ([]ruleCost, error) {
	costs, err := p.ruleCosts(ctx)
	reads := 1.0
	for end := time.Now().Add(o.measure); err == nil && time.Now().Before(end); reads++ {
		if err := pause.For(ctx, o.interval/3); err != nil {
			return nil, err
		}
		var now []ruleCost
		if now, err = p.ruleCosts(ctx); err != nil {
			break
		}
		for i := range costs {
			costs[i].seconds += now[i].seconds
			costs[i].perHour += now[i].perHour
		}
	}
	if err != nil {
		return nil, err
	}
	for i := range costs {
		costs[i].seconds /= reads
		costs[i].perHour /= reads
	}
	slices.SortStableFunc(costs, func(a, b ruleCost) int { return cmp.Compare(b.perHour, a.perHour) })
	return costs, nil
}

// ruleCosts queries Prometheus for the latest evaluation of every rule, in their order there.
func (p *prometheus) ruleCosts(ctx context.Context) ([]ruleCost, error) {
	answer, err := p.Rules(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("rules' costs: %w", err)
	}
	var costs []ruleCost
	for _, g := range answer.Groups {
		for _, r := range g.Rules {
			c := ruleCost{group: g.Name}
			switch r := r.(type) {
			case promv1.RecordingRule:
				c.name, c.query, c.seconds = r.Name, r.Query, r.EvaluationTime
			case promv1.AlertingRule:
				c.name, c.query, c.seconds = r.Name, r.Query, r.EvaluationTime
			}
			if g.Interval > 0 {
				c.perHour = c.seconds * 3600 / g.Interval
			}
			costs = append(costs, c)
		}
	}
	return costs, nil
}

// printRules prints the groups by what they take in an hour, and the dearest rules.
func printRules(out io.Writer, costs []ruleCost) {
	type sum struct {
		group            string
		perHour, seconds float64
	}
	var groups []sum
	for _, c := range costs {
		i := slices.IndexFunc(groups, func(s sum) bool { return s.group == c.group })
		if i < 0 {
			groups = append(groups, sum{group: c.group})
			i = len(groups) - 1
		}
		groups[i].perHour += c.perHour
		groups[i].seconds += c.seconds
	}
	slices.SortStableFunc(groups, func(a, b sum) int { return cmp.Compare(b.perHour, a.perHour) })
	fmt.Fprintln(out)
	for _, g := range groups {
		fmt.Fprintf(out, "%8.0f s of an hour  %8.3f s each  group %s\n", g.perHour, g.seconds, g.group)
	}
	for _, c := range costs[:min(slowRules, len(costs))] {
		query := []rune(c.query)
		fmt.Fprintf(out, "%8.0f s of an hour  %8.3f s each  %s: %s = %s\n", c.perHour, c.seconds, c.group, c.name, string(query[:min(90, len(query))]))
	}
	fmt.Fprintln(out)
}
