package query

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
)

// An event that a program or one of its backup programs misses is counted, and once.
func TestQueryBackups(t *testing.T) {
	collectortest.NeedBackups(t)
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "backed-up", "fsync": "off"}, nil)
	querytest.WaitForServer(t, q, "backed-up")
	names := slices.Sorted(slices.Values(attachedPrograms(q.programs.kernel, nil)))
	for _, without := range collectortest.MissedBy {
		t.Run(fmt.Sprint("without ", without), func(t *testing.T) {
			for _, name := range []string{"socket_received", "socket_sent", "task_ended", "task_executed"} {
				link := &q.programs.links[slices.Index(names, name)]
				if err := (*link).Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if *link, err = q.programs.groups[name].AttachSome(func(rank int) bool { return !slices.Contains(without, rank) }); err != nil {
					t.Fatal(err)
				}
			}
			for _, c := range []struct {
				name   string
				args   []string
				amount uint64
			}{
				{"one connection", []string{"-M", "extended", "-t", "1000"}, 1000},
				{"ten", []string{"-M", "prepared", "-c", "10", "-t", "100"}, 1000},
				{"churn", []string{"-M", "simple", "-C", "-c", "4", "-t", "50"}, 200},
			} {
				got := querytest.During(t, q, "backed-up", c.amount, func() { pg.Bench(t, "select 1;\n", c.args...) })
				querytest.WantCounts(t, got, map[string]uint64{"select": c.amount})
				querytest.WantSum(t, got)
			}
		})
	}
}
