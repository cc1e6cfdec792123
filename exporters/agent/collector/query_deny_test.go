package collector

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Servers are left out by their label, once that is known, and by their pod's annotation.
func TestFleetDeny(t *testing.T) {
	f, k := testFleet(10)
	f.deny, f.onCluster = regexp.MustCompile("^(?:batch-.*|db/pg-2)$"), true
	inPod := func(pid int, uid string) sighting {
		s := running(pid, "", 5432)
		s.pod.UID = uid
		return s
	}
	found := []sighting{running(1, "batch-7"), running(2, "prod-batch-7"), inPod(3, "u1"), inPod(4, "u2"), inPod(5, "u3")}
	f.update(found, begin)
	if got, want := f.labels(), []string{"", "", "", "prod-batch-7"}; !slices.Equal(got, want) {
		t.Fatalf("before the pods are known %q are followed, want %q", got, want)
	}
	pods := map[string]pod.Pod{}
	for uid, name := range map[string]string{"u1": "pg-1", "u2": "pg-2", "u3": "pg-3"} {
		pods[uid] = pod.Pod{Namespace: "db", Name: name} // by the logs
	}
	f.identified(pods, begin)
	pods["u3"] = pod.Pod{Namespace: "db", Name: "pg-3", Complete: true, Unfollowed: true}
	f.identified(pods, begin)
	f.update(found, begin.Add(lookAgain)) // they are not taken again
	if got, want := f.labels(), []string{"db/pg-1", "prod-batch-7"}; !slices.Equal(got, want) {
		t.Errorf("%q are followed, want %q", got, want)
	}
	if len(f.denied) != 3 || len(k.forgotten) != 3 || len(f.accounts) != 2 {
		t.Errorf("%d are left out, the kernel forgot %d, %d have accounts; want 3, 3 and 2", len(f.denied), len(k.forgotten), len(f.accounts))
	}
	f.update(found[:3], begin.Add(2*lookAgain))
	if len(f.denied) != 1 {
		t.Errorf("%d are left out when all but one have ended", len(f.denied))
	}
}

// What is left out is not counted: neither on connections that were there before the agent nor on later ones.
func TestQueryDeny(t *testing.T) {
	denied := servertest.StartPostgres(t, map[string]string{"cluster_name": "denied", "fsync": "off"}, nil)
	before := denied.Connect(t)
	defer before.Close(context.Background())
	q := startQueryWith(t, QueryOptions{Deny: "den.*"})
	testkit.Eventually(t, testkit.Patience, func() error {
		for _, f := range gather(t, q) {
			if f.GetName() == "plumbline_query_servers_denied" && f.Metric[0].Gauge.GetValue() == 1 {
				return nil
			}
		}
		return errors.New("nobody is left out")
	})
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "followed", "fsync": "off"}, nil)
	waitForServer(t, q, "followed")
	for range 100 {
		if _, err := before.Exec(t.Context(), "select 1"); err != nil {
			t.Fatal(err)
		}
	}
	denied.Bench(t, "select 1;\n", "-C", "-c", "2", "-t", "50")
	wantCounts(t, during(t, q, "followed", 100, func() { pg.Bench(t, "select 1;\n", "-t", "100") }), map[string]uint64{"select": 100})
	for _, f := range gather(t, q) {
		for _, m := range f.Metric {
			if server := labels(m)["server"]; server != "" && server != "followed" {
				t.Errorf("%s of server %q", f.GetName(), server)
			}
		}
	}
	c, err := q.kernel.census()
	if err != nil {
		t.Fatal(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, fo := range q.fleet.followers {
		c.backends[fo.number] = 0
	}
	for number, n := range c.backends {
		if n > 0 {
			t.Errorf("%d processes still have number %d", n, number)
		}
	}
}

func TestQueryDenyRefused(t *testing.T) {
	if _, err := NewQuery(Options{Log: slog.New(slog.DiscardHandler), Query: QueryOptions{Deny: "("}}); err == nil {
		t.Error("an expression that is none is taken")
	}
}
