package query

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A server that works for clients that the programs on sockets do not see is reported, and one whose statements are
// counted is not.
func TestQueryUncounted(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "uncounted"}, nil)
	querytest.WaitForServer(t, q, "uncounted")
	uncounted := func() float64 {
		for _, f := range collectortest.Gather(t, q) {
			for _, m := range f.Metric {
				if f.GetName() == "plumbline_query_uncounted_cpu_seconds_total" && collectortest.Labels(m)["server"] == "uncounted" {
					return m.Counter.GetValue()
				}
			}
		}
		t.Fatal("no plumbline_query_uncounted_cpu_seconds_total")
		return 0
	}
	// Some tens of milliseconds of CPU each.
	const work = "select count(*) from generate_series(1, 100000)"
	ctx := context.Background()
	conn := pg.Connect(t)
	for range 3 {
		if _, err := conn.Exec(ctx, work); err != nil {
			t.Fatal(err)
		}
		if n := uncounted(); n != 0 {
			t.Errorf("%g s are reported as not counted, and every statement was counted", n)
		}
	}
	before := querytest.AtRest(t, q, "uncounted").Total()
	for i, name := range slices.Sorted(slices.Values(attachedPrograms(q.programs.kernel, nil))) {
		if strings.HasSuffix(name, "received") || strings.HasSuffix(name, "sent") {
			if err := q.programs.links[i].Close(); err != nil {
				t.Fatal(err)
			}
			q.programs.links[i] = io.NopCloser(nil)
		}
	}
	idle := uncounted()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, err := conn.Exec(ctx, work); err != nil {
			return err
		}
		if n := uncounted(); n <= idle {
			return fmt.Errorf("still %g s of uncounted work", n)
		}
		return nil
	})
	if after := querytest.Collect(t, q, "uncounted").Total(); after != before {
		t.Errorf("%d statements were counted without programs", after-before)
	}
	// One that was never seen is known by its files.
	conn.Close(ctx)
	unknown := pg.Connect(t)
	last := uncounted()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, err := unknown.Exec(ctx, work); err != nil {
			return err
		}
		if n := uncounted(); n <= last {
			return fmt.Errorf("still %g s of uncounted work", n)
		}
		return nil
	})
}
