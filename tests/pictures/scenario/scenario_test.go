package scenario

import (
	"context"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/rules/ruler"
	"github.com/plumbline/plumbline/rules/stored"
	"github.com/plumbline/plumbline/tests/testkit"
)

func known(t *testing.T) templates {
	t.Helper()
	all, err := readTemplates(filepath.Join(testkit.Root(), "tests", "contract", "testdata", "lab", "series.txt"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Every scenario can be planned: its files are understood, and each change finds series of the lab.
func TestPlan(t *testing.T) {
	templates := known(t)
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.plan(templates)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		replicas := 0
		for _, one := range all {
			if one.labels.Get("__name__") == "plumbline_volume_replica_info" {
				replicas++
			}
		}
		if replicas != 4 {
			t.Errorf("%s: %d replicas, want one of longhorn-r1 and three of longhorn-r3", name, replicas)
		}
	}
	if _, err := Load("none"); err == nil {
		t.Error("a scenario that does not exist is loaded")
	}
}

// A class's phases add up to its statements, in every scenario and at every moment.
func TestPhasesAddUp(t *testing.T) {
	templates := known(t)
	for _, name := range Names() {
		s, err := Load(name)
		if err != nil {
			t.Fatal(err)
		}
		all, err := s.plan(templates)
		if err != nil {
			t.Fatal(err)
		}
		for _, since := range []time.Duration{-30 * time.Minute, 30 * time.Minute, 59 * time.Minute} {
			phases, statements := map[string]float64{}, map[string]float64{}
			for _, one := range all {
				st := &state{series: one}
				st.next(since, Step)
				key := one.class + " " + one.labels.Get("command")
				switch one.labels.Get("__name__") {
				case "plumbline_query_phase_seconds_total":
					phases[key] += st.sum
				case "plumbline_query_duration_seconds":
					statements[key] += st.sum
				}
			}
			if len(statements) < 15 {
				t.Fatalf("%s: only %d statements", name, len(statements))
			}
			for key, sum := range statements {
				if math.Abs(phases[key]-sum) > 0.03*sum {
					t.Errorf("%s, %s after the begin, %s: the phases take %g s of %g s", name, since, key, phases[key], sum)
				}
			}
		}
	}
}

// A histogram's buckets are its count, and its mean is the given one.
func TestHistograms(t *testing.T) {
	bounds, err := blockBounds(filepath.Join(testkit.Root(), "exporters", "blockio", "blkio.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"histogram", "custom"} {
		st := &state{series: &series{kind: kind, rate: 100, mean: 0.003}}
		if kind == "custom" {
			st.bounds = bounds
		}
		before, after := st.next(0, Step).histogram, st.next(Step, Step).histogram
		if err := after.Validate(); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
		if mean := after.Sum / after.Count; math.Abs(mean-0.003) > 0.0006 || after.Count <= before.Count {
			t.Errorf("%s: a mean of %g over %g", kind, mean, after.Count)
		}
	}
}

// What the rules record of a scenario is what happens in it.
func TestRecord(t *testing.T) {
	t.Parallel()
	all := recorded(memory(t, "slow-replica"))
	at := func(name string, want map[string]string, when time.Time) bool {
		return slices.ContainsFunc(all, func(r Recorded) bool {
			if r.Metric.Get("__name__") != name {
				return false
			}
			for label, value := range want {
				if r.Metric.Get(label) != value {
					return false
				}
			}
			return slices.ContainsFunc(r.Floats, func(p promql.FPoint) bool { return p.T == when.UnixMilli() && p.F == 1 })
		})
	}
	suspect := map[string]string{"storageclass": "longhorn-r3", "suspect": "replica"}
	if !at("storageclass:suspect:info", suspect, End) {
		t.Error("the replica is not suspect")
	}
	straggler := map[string]string{"alertname": "ReplicaStraggler", "alertstate": "firing", "storageclass": "longhorn-r3"}
	if !at("ALERTS", straggler, End) || at("ALERTS", straggler, End.Add(-Shown/2)) {
		t.Error("ReplicaStraggler fires before the replica is slow, or not then")
	}
	for _, r := range all {
		if slices.ContainsFunc(r.Floats, func(p promql.FPoint) bool { return math.IsInf(p.F, 0) }) {
			t.Errorf("%s is infinite", r.Metric)
		}
	}
}

// The overview's tiles show what is stalled, and not only what has become slower.
func TestTilesNameWhatIsStuck(t *testing.T) {
	t.Parallel()
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(all, func(e dashboards.Expression) bool {
		return e.Dashboard == "plumbline-overview" && e.Place == "$storageclass" && e.Legend == "suspect"
	})
	if at < 0 {
		t.Fatal("the overview's tiles have no suspect")
	}
	// The numbers are those of the tile's states.
	want := map[string]map[string]float64{
		"healthy":      {"local": 0, "longhorn-r1": 0, "longhorn-r3": 0},
		"slow-replica": {"local": 0, "longhorn-r1": 0, "longhorn-r3": 26},
		"stalled-disk": {"local": 120, "longhorn-r1": 127, "longhorn-r3": 127},
	}
	for name, classes := range want {
		for class, number := range classes {
			result := instant(t, name, strings.NewReplacer("$cluster", ".*", "$storageclass", class).Replace(all[at].Text))
			if len(result) != 1 || result[0].F != number {
				t.Errorf("%s: the suspect of %s is %v, want state %g", name, class, result, number)
			}
		}
	}
}

// evaluated are the scenarios with what all rules record of them, each made once, by the first test that needs it.
var evaluated = func() map[string]func() (*ruler.Memory, error) {
	all := map[string]func() (*ruler.Memory, error){}
	for _, name := range Names() {
		all[name] = sync.OnceValues(func() (*ruler.Memory, error) {
			s, err := Load(name)
			if err != nil {
				return nil, err
			}
			return s.evaluate(context.Background(), testkit.Root())
		})
	}
	return all
}()

// memory returns a scenario with what the rules record of it.
func memory(t *testing.T, scenario string) *ruler.Memory {
	t.Helper()
	testkit.Long(t, "evaluates all rules over a scenario")
	m, err := evaluated[scenario]()
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// instant evaluates an expression at a scenario's end.
func instant(t *testing.T, scenario, expr string) promql.Vector {
	t.Helper()
	engine := ruler.NewEngine()
	query, err := engine.NewInstantQuery(t.Context(), stored.Find(memory(t, scenario).Find), nil, expr, End)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer query.Close()
	result := query.Exec(t.Context())
	if scalar, ok := result.Value.(promql.Scalar); ok {
		return promql.Vector{{F: scalar.V}}
	}
	vector, err := result.Vector()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return vector
}
