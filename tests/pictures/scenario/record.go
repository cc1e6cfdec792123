package scenario

import (
	"context"
	"path/filepath"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/plumbline/plumbline/rules"
	"github.com/plumbline/plumbline/rules/ruler"
)

const (
	// Shown is how much of a scenario the dashboards show, before its end.
	Shown = time.Hour
	// past is what goes before: rules compare with it.
	past = time.Hour
)

// End is the moment at which every scenario ends; not at a full hour, whose number would be cut off at the axis' end.
var End = time.Date(2026, time.March, 2, 12, 7, 0, 0, time.UTC)

// Begin is the moment of the first sample.
func Begin() time.Time { return End.Add(-Shown - past) }

// Recorded is a series with its samples.
type Recorded struct{ promql.Series }

// Record makes the samples of a scenario and what the rules record of them; root is the checkout's.
func (s *Scenario) Record(ctx context.Context, root string) ([]Recorded, error) {
	m, err := s.evaluate(ctx, root)
	if err != nil {
		return nil, err
	}
	return recorded(m), nil
}

// evaluate makes the samples and evaluates all rules over them; root is the checkout's folder.
func (s *Scenario) evaluate(ctx context.Context, root string) (*ruler.Memory, error) {
	all, err := rules.All()
	if err != nil {
		return nil, err
	}
	return s.record(ctx, root, ruler.NewEngine(), all, keep)
}

// recorded are all series.
func recorded(m *ruler.Memory) (all []Recorded) {
	for _, one := range m.All() {
		all = append(all, Recorded{one.Series})
	}
	return all
}

// keep keeps a sample as it is; it is a keeper.
func keep(m *ruler.Memory, l labels.Labels, at time.Time, s sample) *ruler.Series {
	return m.Add(l, at, s.number, s.histogram)
}

// keeper keeps a sample of a series.
type keeper func(*ruler.Memory, labels.Labels, time.Time, sample) *ruler.Series

// record makes the samples, each kept by keep, and evaluates rules over them.
func (s *Scenario) record(ctx context.Context, root string, engine *promql.Engine, all []rules.Rule, keep keeper) (*ruler.Memory, error) {
	states, err := s.states(root)
	if err != nil {
		return nil, err
	}
	evaluated := ruler.New(all)
	m, begin := ruler.NewMemory(), End.Add(-Shown)
	for at := Begin(); !at.After(End); at = at.Add(Step) {
		for _, one := range states {
			keep(m, one.labels, at, one.next(at.Sub(begin), Step))
		}
		for _, r := range evaluated {
			if err := r.Evaluate(ctx, engine, m, at); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// states are the scenario's series before their first sample; root is the checkout's.
func (s *Scenario) states(root string) ([]*state, error) {
	known, err := readTemplates(filepath.Join(root, "tests", "contract", "testdata", "lab", "series.txt"))
	if err != nil {
		return nil, err
	}
	planned, err := s.plan(known)
	if err != nil {
		return nil, err
	}
	bounds, err := blockBounds(filepath.Join(root, "exporters", "blockio", "blkio.yaml"))
	if err != nil {
		return nil, err
	}
	var states []*state
	for _, one := range planned {
		st := &state{series: one}
		if one.kind == "custom" {
			st.bounds = bounds
		}
		states = append(states, st)
	}
	return states, nil
}
