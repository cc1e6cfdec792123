//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/tests/testkit"
)

// notOnNode are the panels that this node cannot fill, or cannot fill whole, and why.
var notOnNode = map[string]string{
	"plumbline-databases/Lag behind the source":                     "needs a MySQL replica",
	"plumbline-databases/Page-cache hits":                           "its databases fit into their buffers: five minutes may pass without a read of a file",
	"plumbline-itself/Servers and replicas followed":                replicas,
	"plumbline-itself/CPUs of statements that are not counted":      "all work is counted",
	"plumbline-load/Faults in effect":                               soak,
	"plumbline-load/Soak done":                                      soak,
	"plumbline-load/Soak's samples not saved":                       soak,
	"plumbline-overview/$storageclass":                              replicas,
	"plumbline-overview/Time per statement, by layer":               replicas,
	"plumbline-overview/Firing alerts":                              "all is well",
	"plumbline-overview/Stalled volumes":                            "none does",
	"plumbline-itself/Things that are not identified":               "all is identified",
	"plumbline-overview/Sync overhead of replication (5 min)":       replicas,
	"plumbline-overview/Volumes with a straggling replica (5 min)":  replicas,
	"plumbline-queries/Texts":                                       "no exporter exports texts",
	"plumbline-query-to-disk/Oldest request below the volume":       replicas,
	"plumbline-query-to-disk/Slow replica, 5 min":                   replicas,
	"plumbline-query-to-disk/Statement and layers together (5 min)": replicas,
	"plumbline-query-to-disk/Sync overhead, 5 min":                  replicas,
	"plumbline-query-to-disk/Times of writes to the replicas":       replicas,
	"plumbline-volumes/Size of the volume":                          "only an engine reports it",
	"plumbline-volumes/Pods that wait for I/O":                      "the kubelet reports it on cgroup v2 alone",
}

const (
	replicas = "no volume here has an engine with replicas"
	soak     = "no soak runs"
)

// reason returns why a panel has no data here; "" if it must have.
func reason(place string) string {
	if strings.HasPrefix(place, "plumbline-replicas/") {
		return replicas
	}
	return notOnNode[place]
}

// panels evaluates every expression of every dashboard: those of notOnNode aside, each panel has
// data. The table of all goes to build/e2e/panels.md.
func (n *node) panels() {
	n.t.Helper()
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	n.must(err)
	type count struct{ filled, all int }
	counts := map[string]*count{}
	empty := map[string][]string{}
	for _, e := range all {
		if e.Kind != "panel" {
			continue
		}
		c := counts[e.Dashboard]
		if c == nil {
			c = &count{}
			counts[e.Dashboard] = c
		}
		c.all++
		expression := e.Fill(dashboards.Intervals{Rate: "1m", Range: "5m"}, nil)
		err := n.some(expression)()
		if err != nil && reason(e.Dashboard+"/"+e.Place) == "" {
			err = testkit.Await(time.Minute, n.some(expression))
		}
		if err != nil {
			empty[e.Dashboard+"/"+e.Place] = append(empty[e.Dashboard+"/"+e.Place], err.Error())
			continue
		}
		c.filled++
	}
	var b strings.Builder
	b.WriteString("| dashboard | expressions with data | of |\n|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&b, "| %s | %d | %d |\n", name, counts[name].filled, counts[name].all)
	}
	b.WriteString("\n| empty | why |\n|---|---|\n")
	for _, place := range slices.Sorted(maps.Keys(empty)) {
		fmt.Fprintf(&b, "| %s | %s |\n", place, reason(place))
		if reason(place) == "" {
			n.t.Errorf("%s has no data: %s", place, empty[place][0])
		}
	}
	n.t.Log("\n" + b.String())
	n.report("panels.md", b.String())
}
