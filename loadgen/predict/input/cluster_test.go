package input

import (
	"testing"

	"github.com/plumbline/plumbline/rules/why"
	"github.com/plumbline/plumbline/rules/why/whytest"
)

// A prediction within a cluster goes by its series alone, whatever other clusters call theirs; those without a label
// are a cluster, too.
func TestWithin(t *testing.T) {
	for cluster, sync := range map[string]float64{"": 4, "eu": 40} {
		r := whytest.Clusters(map[string]float64{"": 4, "eu": 40})
		q := testQuestion()
		q.Subject, q.Class = why.Subject{Class: "r3"}, "r1"
		in, err := q.Input(t.Context(), why.Within(r, cluster))
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range in.Workload.Windows {
			for _, s := range w.Statements {
				if s.Kind == "commit" && (s.Response.Count() > 1000 || len(s.Response.Bounds) > 3 || s.Phases["sync"]/s.Response.Count() > sync*1.1/1000) {
					t.Errorf("cluster %q: %.0f commits, %v seconds of sync: of others, too", cluster, s.Response.Count(), s.Phases["sync"])
				}
			}
		}
		if n := in.From.Windows[0].Operations["write"].Times.Count(); n > 1500 || len(in.To.Windows) != q.Windows {
			t.Errorf("cluster %q: %.0f writes, %d windows of the other class", cluster, n, len(in.To.Windows))
		}
	}
}
