package lab

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/dashboards"
	"github.com/plumbline/plumbline/manifests/lab/damage"
	"github.com/plumbline/plumbline/tests/testkit"
)

// intervals are wide enough for the slowest scrape of the lab and of the tests below.
var intervals = dashboards.Intervals{Rate: "1m", Range: "5m"}

// notHere are the panels and annotations without data in the healthy lab, and why. Those
// marked "other" have data in TestDashboardsOfOtherDatabases.
var notHere = map[string]string{
	"plumbline-databases/Statements":                            other,
	"plumbline-databases/Threads running":                       other,
	"plumbline-databases/Buffer-pool hits":                      other,
	"plumbline-databases/Dirty pages":                           other,
	"plumbline-databases/Redo log written":                      other,
	"plumbline-databases/Syncs and waits for the log":           other,
	"plumbline-databases/Statements waiting for row locks":      other,
	"plumbline-databases/Lag behind the source":                 "needs a MySQL replica",
	"plumbline-load/Faults in effect":                           other,
	"plumbline-load/Soak done":                                  other,
	"plumbline-load/Soak's samples not saved":                   other,
	"plumbline-volumes/File system used":                        "the lab has no kubelet",
	"plumbline-volumes/Pods that wait for I/O":                  "the lab has no kubelet",
	"plumbline-overview/95th percentile against the baseline's": other,
	"plumbline-load/95th percentile against the baseline's":     other,
	"plumbline-load/Comparable with the baseline":               "needs five steady minutes at a pinned rate; the rules' own tests have them",
	"plumbline-queries/Texts":                                   texts,
	"plumbline-overview/Firing alerts":                          "all is well",
	"plumbline-overview/Stalled volumes":                        "none does",
	"plumbline-itself/Things that are not identified":           "all is identified",
	"plumbline-replicas/Disks against their peers":              "the lab has one disk",
	"plumbline-replicas/Rebuilds under way":                     "no rebuild runs; longhorn_exporter's own tests make one",
	"*/Alerts":                                                  "all is well",
	"*/Rebuilds":                                                "no rebuild runs; longhorn_exporter's own tests make one",
	"*/Degraded volumes":                                        "all replicas are healthy",
	"*/Databases down":                                          "all databases are up",
	"*/Restarts, snapshots":                                     "nothing was restarted lately, and nobody takes a snapshot",
	"*/Faults of a soak":                                        other,
}

const texts = "postgres_exporter exports no texts unless it is configured to"

const other = "the lab has no MySQL by default, no soak and no baseline"

func readExpressions(t *testing.T) []dashboards.Expression {
	t.Helper()
	all, err := dashboards.Expressions(filepath.Join(testkit.Root(), "dashboards"))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// reason returns why an expression has no data in the healthy lab; "" if it must have.
func reason(e dashboards.Expression) string {
	if why, ok := notHere[e.Dashboard+"/"+e.Place]; ok && e.Kind == "panel" {
		return why
	}
	if e.Kind == "annotation" {
		return notHere["*/"+e.Place]
	}
	if e.Kind == "variable" && e.Place == "cluster" {
		return "the lab has one cluster, which has no name"
	}
	return ""
}

// hasData queries a Prometheus for an expression as Grafana does, and returns an error unless there is something to be
// drawn: a number, or a histogram with something in it. A variable must have a value that is not empty.
func hasData(url string, e dashboards.Expression) error {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	expr := e.Fill(intervals, nil)
	answer, warnings, err := promv1.NewAPI(client).Query(ctx, expr, time.Now())
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", e.Where(), err, expr)
	}
	for _, w := range warnings {
		// The exporter's names of PostgreSQL's counters do not show that they are counters.
		if !strings.Contains(w, "metric might not be a counter") {
			return fmt.Errorf("%s: %s\n%s", e.Where(), w, expr)
		}
	}
	v, ok := answer.(model.Vector)
	if !ok {
		return fmt.Errorf("%s: a %s\n%s", e.Where(), answer.Type(), expr)
	}
	for _, s := range v {
		switch {
		case s.Metric["absent"] != "": // the reason why there is nothing
		case e.Kind == "variable":
			for _, value := range s.Metric {
				if value != "" {
					return nil
				}
			}
		case s.Histogram != nil && s.Histogram.Count > 0, s.Histogram == nil && !math.IsNaN(float64(s.Value)):
			return nil
		}
	}
	return fmt.Errorf("%s: %d series, nothing to draw\n%s", e.Where(), len(v), expr)
}

// Every expression of every dashboard has data in the lab, except those with a reason.
func TestDashboardsHaveData(t *testing.T) {
	running(t)
	left := map[string]bool{}
	for name := range notHere {
		left[name] = true
	}
	var waiting []dashboards.Expression
	for _, e := range readExpressions(t) {
		delete(left, e.Dashboard+"/"+e.Place)
		delete(left, "*/"+e.Place)
		if reason(e) == "" {
			waiting = append(waiting, e)
		}
	}
	awaitAll(t, waiting, func(e dashboards.Expression) error { return hasData(prometheus, e) })
	t.Logf("%d expressions have data", len(waiting))
	for name := range left {
		t.Errorf("notHere names %s, which is on no dashboard", name)
	}
}

// A replica that pauses repeatedly, too briefly to be given up, is the one that the dashboard of replicas puts on
// top: the last step of the walk-through in docs/operate/dashboards.md. Then why names it, and the commit's query
// identifier, as pg_stat_statements has it, before all others that wait for it.
func TestDelayedReplicaIsFound(t *testing.T) {
	running(t)
	rebuildLost(t)
	delayed := "longhorn-r3-replica-2"
	delay := func() damage.Mend {
		return damage.ByTurns(t.Context(), process(t, dir, "replica", dir+"/classes/longhorn-r3/replicas/2"), time.Second)
	}
	mend := delay()
	t.Cleanup(func() {
		if err := mend(); err != nil {
			t.Error(err)
		}
	})

	// What two of its graphs query, for this volume alone.
	values := map[string]string{"volume": volume("longhorn-r3")}
	questions := map[string]string{}
	for _, e := range readExpressions(t) {
		if e.Dashboard == "plumbline-replicas" && (e.Place == "Round trip of a write" || e.Place == "Time waited for this replica alone") {
			questions[e.Place] = fmt.Sprintf("topk(1, %s)", e.Fill(dashboards.Intervals{Rate: "30s"}, values))
		}
	}
	if len(questions) != 2 {
		t.Fatalf("the panels are not there: %v", questions)
	}
	testkit.Eventually(t, defaultTimeout, func() error {
		for place, question := range questions {
			v, err := query(prometheus, question)
			if err != nil {
				return err
			}
			if len(v) != 1 || string(v[0].Metric["replica"]) != delayed || v[0].Value < 0.01 {
				// On a busy machine it may have paused too long.
				if lost := lostReplicas(t); len(lost) > 0 {
					if err := mend(); err != nil {
						t.Fatal(err)
					}
					rebuildLost(t)
					mend = delay()
				}
				return fmt.Errorf("%s does not show %s: %v", place, delayed, v)
			}
		}
		return whyNames(t, delayed)
	})
}

// firstQuery is the query that why names first of those that wait for a layer.
var firstQuery = regexp.MustCompile(`waiting most for it, by queryid: (-?[0-9]+) `)

// whyNames is nil once why blames a replica of longhorn-r3, and names a commit first of the queries that wait for it.
func whyNames(t *testing.T, replica string) error {
	t.Helper()
	out, err := command("why", "longhorn-r3").CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	first := firstQuery.FindStringSubmatch(strings.Join(strings.Fields(string(out)), " "))
	if first == nil || !strings.Contains(string(out), replica+" stands out") {
		return fmt.Errorf("why does not name %s, and a query that waits for it:\n%s", replica, out)
	}
	query, err := psql(t, "longhorn-r3", "select query from pg_stat_statements where queryid = "+first[1])
	if err == nil && query != "end" && query != "END" && query != "commit" {
		err = fmt.Errorf("first of the queries that wait is %q:\n%s", query, out)
	}
	return err
}

// The panels of MySQL, of a baseline and of a soak have data where those are: a MariaDB with
// its exporter and a soak on it, scraped by a Prometheus of the test's own.
func TestDashboardsOfOtherDatabases(t *testing.T) {
	url := otherDatabases(t)
	checked := 0
	for _, e := range readExpressions(t) {
		if reason(e) != other {
			continue
		}
		checked++
		testkit.Eventually(t, defaultTimeout, func() error { return hasData(url, e) })
	}
	if checked < 15 {
		t.Errorf("only %d expressions were evaluated", checked)
	}
}

// writeFile writes a file of the test.
func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
