package why

import (
	"context"
	"strings"
	"testing"
	"time"

	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/rules/layers"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// A rule that fails costs what it records, and neither the answer nor what the others judge.
func TestFailedRule(t *testing.T) {
	f := &Finding{At: time.Unix(1e9, 0), Window: 5 * time.Minute, Target: Target{Node: "b", Server: "shop/db-1", Engine: "postgresql", Class: "c", Volume: "v"},
		Commits: Statement{Count: 1000, Mean: 0.02, Phases: []Layer{{layers.Sync, 0.02}}}, grown: []string{layers.Device}}
	f.Statements = f.Commits
	for _, device := range []string{"sda", "sdb"} { // of one name: many to many, for a rule that looks up its disk
		f.Replicas = append(f.Replicas, Replica{Name: "r1", Node: "b", Device: device, RoundTrip: 0.01, Service: 0.009, Disk: 0.008})
	}
	if err := f.judge(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.Join(f.Missing(), "\n"), "what rule replica:") {
		t.Errorf("missing: %q", f.Missing())
	}
	if f.Verdict.Reason != Grown {
		t.Errorf("verdict %+v", f.Verdict)
	}
}

// refusing cannot evaluate queries of replicas' requests: two series match one.
type refusing struct{ API }

func (r refusing) Query(ctx context.Context, query string, at time.Time, options ...promv1.Option) (model.Value, promv1.Warnings, error) {
	if strings.Contains(query, "plumbline_replica_request_duration_seconds") {
		query = `(vector(1) or label_replace(vector(1), "a", "b", "", "")) * on() vector(1)`
	}
	return r.API.Query(ctx, query, at, options...)
}

// What Prometheus cannot evaluate is missing, and is no error of the whole.
func TestFailedQuery(t *testing.T) {
	f, err := Find(t.Context(), refusing{whytest.Healthy().Record()}, Subject{Class: "r3"}, whytest.End, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	Checked(t, f)
	if all := strings.Join(f.Missing(), "\n"); !strings.Contains(all, ", which Prometheus cannot evaluate: ") {
		t.Errorf("missing:\n%s", all)
	}
	if f.Verdict.Reason == Few {
		t.Errorf("verdict %+v", f.Verdict)
	}
}
