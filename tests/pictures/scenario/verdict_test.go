package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/plumbline/plumbline/manifests/kubectl-plumbline/answer"
	"github.com/plumbline/plumbline/rules/ruler"
	"github.com/plumbline/plumbline/rules/stored"
	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/tests/schematest"
)

// What is recorded is made of records that are up to a minute older, and is there up to three minutes later.
const early, late = time.Minute, 3 * time.Minute

// api makes a scenario's memory the API that why queries.
type api struct {
	engine *promql.Engine
	memory *ruler.Memory
}

func (a api) Query(ctx context.Context, query string, at time.Time, _ ...promv1.Option) (model.Value, promv1.Warnings, error) {
	q, err := a.engine.NewInstantQuery(ctx, stored.Find(a.memory.Find), nil, query, at)
	if err != nil {
		return nil, nil, err
	}
	defer q.Close()
	vector, err := q.Exec(ctx).Vector()
	if err != nil {
		return nil, nil, err
	}
	out := model.Vector{}
	for _, s := range vector {
		metric := model.Metric{}
		s.Metric.Range(func(l labels.Label) { metric[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		out = append(out, &model.Sample{Metric: metric, Value: model.SampleValue(s.F), Timestamp: model.TimeFromUnixNano(at.UnixNano())})
	}
	return out, nil, nil
}

// vector evaluates an expression.
func (a api) vector(t *testing.T, expr string, at time.Time) model.Vector {
	t.Helper()
	v, _, err := a.Query(t.Context(), expr, at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v.(model.Vector)
}

// names are the layers and replicas of a verdict: of its surest reason alone, and of no layer if that is none.
func names(culprits []why.Culprit) (all []string) {
	for _, c := range culprits {
		if c.Reason == culprits[0].Reason {
			all = append(all, fmt.Sprintf("%s: %s %s", c.Reason, c.Layer, c.Replica))
		}
	}
	slices.Sort(all)
	return all
}

// The rules, an alert and why name the same at each moment of each scenario, on its way in and on its way out: but for
// what records need to follow. Nothing of the healthy hour stands out.
func TestOneVerdict(t *testing.T) {
	for _, name := range Names() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := api{ruler.NewEngine(), memory(t, name)}
			judged := map[why.Reason]bool{}
			schema := schematest.Compile(t, answer.Schema)
			for at := End.Add(-Shown + 10*time.Minute); !at.After(End); at = at.Add(2 * time.Minute) {
				for _, server := range a.vector(t, "server:volume:info", at) {
					name := string(server.Metric["server"])
					f, err := why.Find(t.Context(), a, why.Subject{Server: name}, at, 5*time.Minute)
					if err != nil {
						t.Fatal(err)
					}
					schematest.Valid(t, schema, answer.Why{Head: answer.Head{APIVersion: answer.Version, Kind: answer.KindWhy, Time: at}, Items: []answer.Finding{answer.NewFinding(f)}})
					got := names(f.Verdict.Culprits)
					var seen [][]string
					for then := at.Add(-early); !then.After(at.Add(late)) && !then.After(End); then = then.Add(30 * time.Second) {
						culprits := a.recorded(t, name, then)
						recorded := names(culprits)
						if slices.Equal(recorded, got) || alike(f, culprits) {
							seen = nil
							break
						}
						seen = append(seen, recorded)
					}
					if seen != nil {
						t.Errorf("%s at %s before the end: why names %q (%s), the rules %q", name, End.Sub(at), got, f.Verdict.Text, seen)
					}
					a.suspected(t, name, at, f)
					judged[f.Verdict.Reason] = true
				}
			}
			if scenario := map[string]why.Reason{"slow-replica": why.SlowReplica, "stalled-disk": why.Stalled, "lock-storm": why.Lock}[name]; scenario != "" && !judged[scenario] {
				t.Errorf("no verdict is %s: %v", scenario, judged)
			}
			if name == "healthy" && (len(judged) != 1 || !judged[why.Largest]) {
				t.Errorf("of the healthy hour the verdicts are %v", judged)
			}
		})
	}
}

// alike reports whether two layers are about as large where nothing stands out.
func alike(f *why.Finding, recorded []why.Culprit) bool {
	if f.Verdict.Reason != why.Largest || len(recorded) == 0 || recorded[0].Reason != why.Largest {
		return false
	}
	taken := map[string]float64{}
	_, _, parts := f.Main()
	for _, l := range parts {
		taken[l.Name] += l.Seconds
	}
	return taken[recorded[0].Layer] > 0.9*taken[f.Verdict.Layer]
}

// recorded are the culprits of a server that the rules have recorded, the surest first.
func (a api) recorded(t *testing.T, server string, at time.Time) (all []why.Culprit) {
	t.Helper()
	for _, s := range a.vector(t, fmt.Sprintf("server:verdict:confidence{server=%q}", server), at) {
		m := s.Metric
		all = append(all, why.Culprit{Reason: why.Reason(m["reason"]), Layer: string(m["layer"]), Replica: string(m["replica"]), Confidence: float64(s.Value)})
	}
	slices.SortFunc(all, func(a, b why.Culprit) int {
		switch {
		case a.Confidence > b.Confidence:
			return -1
		case a.Confidence < b.Confidence:
			return 1
		}
		return strings.Compare(a.Replica, b.Replica)
	})
	return all
}

// suspected compares the layer that an alert of the canary would name.
func (a api) suspected(t *testing.T, server string, at time.Time, f *why.Finding) {
	t.Helper()
	var seen []string
	for then := at.Add(-early); !then.After(at.Add(late)) && !then.After(End); then = then.Add(30 * time.Second) {
		suspects := a.vector(t, fmt.Sprintf("loadgen:suspect:info{server=%q}", server), then)
		if len(suspects) == 0 {
			return
		}
		for _, s := range suspects {
			suspect := string(s.Metric["suspect"])
			if slices.ContainsFunc(f.Verdict.Culprits, func(c why.Culprit) bool { return c.Layer == suspect || string(c.Reason) == suspect }) {
				return
			}
			seen = append(seen, suspect)
		}
	}
	t.Errorf("%s at %s before the end: why names %q, an alert %q", server, End.Sub(at), names(f.Verdict.Culprits), seen)
}
