package why

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/stored"
)

// judging are the groups of rules that make a verdict of what is known of one moment.
var judging = []string{"plumbline-verdict-thresholds", "plumbline-verdict"}

// leastOperations is the threshold of operations a second below which there is no mean to judge.
const leastOperations = "threshold:operations_per_second:min"

// judges returns the verdict's rules in their order.
var judges = sync.OnceValues(func() ([]rules.Rule, error) { return rules.Groups("verdict.rules.yaml", judging...) })

// leastSamples returns how many operations a mean that is judged has at least: as many as the verdict's rules want in
// their five minutes.
var leastSamples = sync.OnceValue(func() (n float64) {
	all, err := judges()
	for _, r := range all {
		if r.Record == leastOperations {
			_, err = fmt.Sscanf(r.Expr, "vector(%g / 300)", &n)
		}
	}
	if err != nil || n == 0 {
		panic(fmt.Sprintf("rules/verdict.rules.yaml: no number of operations in %s: %v", leastOperations, err))
	}
	return n
})

// series are those of one moment: what was measured, and what the verdict's rules make of it.
type series struct {
	at  time.Time
	all []storage.Series
}

// add adds a series by its name and pairs of labels and values; none for a figure that was not measured. Empty labels
// are none.
func (s *series) add(name string, value float64, pairs ...string) {
	if !Known(value) {
		return
	}
	b := labels.NewBuilder(labels.EmptyLabels()).Set(model.MetricNameLabel, name)
	for i := 0; i < len(pairs); i += 2 {
		b.Set(pairs[i], pairs[i+1])
	}
	s.set(b.Labels(), value)
}

func (s *series) set(l labels.Labels, value float64) {
	s.all = append(s.all, stored.Sample(l, s.at.UnixMilli(), value))
}

// find is stored.Find: all are of one moment.
func (s *series) find(_, _ int64, matchers []*labels.Matcher) []storage.Series {
	return stored.Select(s.all, matchers)
}

// evaluate adds what the verdict's rules record, and returns what of that is left out because its rule fails. A
// threshold that is there already is not recorded again.
func (s *series) evaluate(ctx context.Context) (failed []string, err error) {
	all, err := judges()
	if err != nil {
		return nil, err
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1 << 20, Timeout: time.Minute})
	given := map[string]bool{}
	for _, one := range s.all {
		given[one.Labels().Get(model.MetricNameLabel)] = true
	}
	for _, r := range all {
		if given[r.Record] && strings.HasPrefix(r.Record, "threshold:") {
			continue
		}
		if err := s.record(ctx, engine, r); err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("rule %s: %w", r.Record, err)
			}
			failed = append(failed, fmt.Sprintf("what rule %s records, which fails: %s", r.Record, Line(err)))
		}
	}
	return failed, nil
}

// record adds what a rule records.
func (s *series) record(ctx context.Context, engine *promql.Engine, r rules.Rule) error {
	q, err := engine.NewInstantQuery(ctx, stored.Find(s.find), nil, r.Expr, s.at)
	if err != nil {
		return err
	}
	defer q.Close()
	answer := q.Exec(ctx)
	vector, err := answer.Vector()
	if err != nil {
		return err
	}
	for _, sample := range vector {
		b := labels.NewBuilder(sample.Metric).Set(model.MetricNameLabel, r.Record)
		for name, value := range r.Labels {
			b.Set(name, value)
		}
		s.set(b.Labels(), sample.F)
	}
	return nil
}

// of returns the series of a name.
func (s *series) of(name string) (found []promql.Sample) {
	for _, one := range s.all {
		if l := one.Labels(); l.Get(model.MetricNameLabel) == name {
			at := one.Iterator(nil)
			at.Next()
			_, v := at.At()
			found = append(found, promql.Sample{Metric: l, F: v})
		}
	}
	return found
}
