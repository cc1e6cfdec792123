package collector

import (
	"fmt"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/bpf/replica"
	"github.com/plumbline/plumbline/exporters/agent/platform"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// missing are ranks that miss every event, as if tasks were preempted within them all the time.
var missing = [][]int{nil, {0}, {1}, {3}, {0, 1}, {0, 2, 3}, {0, 1, 2}}

// needDeputies skips where programs at tracepoints cannot have any.
func needDeputies(t *testing.T) {
	t.Helper()
	testkit.NeedBPF(t)
	t.Setenv("PLUMBLINE_BOUNDARY", string(platform.Deputised))
	if k := testPlatform(t); len(k.Missing(platform.SocketTracepoints...)) > 0 {
		testkit.Skip(t, "needs the tracepoints of Linux 6.3")
	}
}

// An event that a program or one of its deputies misses is counted, and once.
func TestQueryDeputies(t *testing.T) {
	needDeputies(t)
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "deputised", "fsync": "off"}, nil)
	waitForServer(t, q, "deputised")
	names := slices.Sorted(slices.Values(attachedPrograms(q.programs.kernel, nil)))
	for _, without := range missing {
		t.Run(fmt.Sprint("without ", without), func(t *testing.T) {
			for _, name := range []string{"socket_received", "socket_sent", "task_ended", "task_executed"} {
				link := &q.programs.links[slices.Index(names, name)]
				if err := (*link).Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if *link, err = q.programs.crews[name].AttachSome(func(rank int) bool { return !slices.Contains(without, rank) }); err != nil {
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
				got := during(t, q, "deputised", c.amount, func() { pg.Bench(t, "select 1;\n", c.args...) })
				wantCounts(t, got, map[string]uint64{"select": c.amount})
				wantSum(t, got)
			}
		})
	}
}

// The same of requests to replicas.
func TestReplicaDeputies(t *testing.T) {
	needDeputies(t)
	for _, without := range missing {
		t.Run(fmt.Sprint("without ", without), func(t *testing.T) {
			v := newTestVolume(t, 2)
			m := startReplicaCollector(t, v)
			m.followed(2)
			k := m.collector.wires[0].kernel
			// Before the engine's first byte: what goes by unseen on a connection cannot be made up for.
			for _, name := range []string{replica.DataconnProgReplicaReceived, replica.DataconnProgReplicaSent} {
				k.mu.Lock()
				err := k.links[name].Close()
				if err == nil {
					k.links[name], err = k.crews[name].AttachSome(func(rank int) bool { return !slices.Contains(without, rank) })
				}
				k.mu.Unlock()
				if err != nil {
					t.Fatal(err)
				}
			}
			v.Start()
			m.followed(3)
			v.exact(m, 500, v.Addresses...)
			m.read().clean(t)
		})
	}
}
