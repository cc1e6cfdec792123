package query

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/testkit"
)

// Servers are left out by their label, once that is known, and by their pod's annotation.
func TestFleetDeny(t *testing.T) {
	f, k := testFleet(10)
	f.deny, f.onCluster = regexp.MustCompile("^(?:batch-.*|db/pg-2)$"), true
	inPod := func(pid int, uid string) observation {
		s := running(pid, "", 5432)
		s.pod.UID = uid
		return s
	}
	found := []observation{running(1, "batch-7"), running(2, "prod-batch-7"), inPod(3, "u1"), inPod(4, "u2"), inPod(5, "u3")}
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
	f.update(found, begin.Add(rescanInterval)) // they are not taken again
	if got, want := f.labels(), []string{"db/pg-1", "prod-batch-7"}; !slices.Equal(got, want) {
		t.Errorf("%q are followed, want %q", got, want)
	}
	if len(f.denied) != 3 || len(k.forgotten) != 3 || len(f.accounts) != 2 {
		t.Errorf("%d are left out, the kernel forgot %d, %d have accounts; want 3, 3 and 2", len(f.denied), len(k.forgotten), len(f.accounts))
	}
	f.update(found[:3], begin.Add(2*rescanInterval))
	if len(f.denied) != 1 {
		t.Errorf("%d are left out when all but one have ended", len(f.denied))
	}
}

// So they are beyond the limit, one by one, and what only they need is detached.
func TestFleetDenyBeyondLimit(t *testing.T) {
	f, k := testFleet(1)
	f.deny, f.onCluster = regexp.MustCompile("batch-.*"), true
	found := []observation{running(1, "first"), running(2, "batch-1"), running(3, "", 5432), running(5, "", 5432)}
	found[2].pod.UID, found[3].pod.UID = "u3", "u5"
	found[2].DBSystem = server.MySQL
	f.update(found, begin)
	if !k.wakes {
		t.Error("wake-ups of a MySQL server are not followed")
	}
	f.identified(map[string]pod.Pod{
		"u3": {Namespace: "db", Name: "my", Complete: true, Unfollowed: true},
		"u5": {Namespace: "db", Name: "batch", Complete: true},
	}, begin)
	if got, want := f.labels(), []string{"first", "other"}; !slices.Equal(got, want) {
		t.Errorf("%q are followed, want %q", got, want)
	}
	slices.Sort(k.forgetPIDs)
	if want := []int{2, 3}; !slices.Equal(k.forgetPIDs, want) || len(k.forgotten) != len(want) || f.accounts[accountKey{collector.OtherServer, collector.OtherServer}] == nil {
		t.Errorf("processes %v are followed no more, want %v; numbers %v", k.forgetPIDs, want, k.forgotten)
	}
	if f.update(found, begin.Add(time.Second)); k.wakes {
		t.Error("wake-ups are followed for nobody")
	}
}

// What is left out is not counted: neither on connections that were there before the agent nor on later ones. Its
// processes cost no more than any other, and no more wake-ups are followed for it.
func TestQueryDeny(t *testing.T) {
	denied := servertest.StartPostgres(t, map[string]string{"cluster_name": "denied", "fsync": "off"}, nil)
	before := denied.Connect(t)
	defer before.Close(context.Background())
	my := servertest.StartMariaDB(t)
	q := startQueryWith(t, Options{Deny: "den.*|mariadb[:-].*", ScanInterval: time.Second})
	waitDenied(t, q, 2)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "followed", "fsync": "off"}, nil)
	querytest.WaitForServer(t, q, "followed")
	for range 100 {
		if _, err := before.Exec(t.Context(), "select 1"); err != nil {
			t.Fatal(err)
		}
	}
	denied.Bench(t, "select 1;\n", "-C", "-c", "2", "-t", "50")
	querytest.WantCounts(t, querytest.During(t, q, "followed", 100, func() { pg.Bench(t, "select 1;\n", "-t", "100") }), map[string]uint64{"select": 100})
	for _, f := range collectortest.Gather(t, q) {
		for _, m := range f.Metric {
			if server := collectortest.Labels(m)["server"]; server != "" && server != "followed" {
				t.Errorf("%s of server %q", f.GetName(), server)
			}
		}
	}
	c, err := q.kernel.snapshot()
	if err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		q.mu.Lock()
		defer q.mu.Unlock()
		if q.programs.wakes != nil {
			return errors.New("the program at wake-ups is attached")
		}
		return nil
	})
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, pid := range []int{denied.PID, int(before.PgConn().PID()), my.PID, pg.PID} {
		if hasStorage(t, q, pid) != (pid == pg.PID) {
			t.Errorf("process %d has storage, or the one that is followed has none", pid)
		}
	}
	for _, srv := range q.fleet.tracked {
		c.tasks[srv.number] = 0
	}
	for number, n := range c.tasks {
		if n > 0 {
			t.Errorf("%d processes still have number %d", n, number)
		}
	}
}

// waitDenied waits until so many servers are left out.
func waitDenied(t *testing.T, q *query, n float64) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		for _, f := range collectortest.Gather(t, q) {
			if f.GetName() == "plumbline_query_servers_denied" && f.Metric[0].Gauge.GetValue() == n {
				return nil
			}
		}
		return fmt.Errorf("not %v are left out", n)
	})
}

// hasStorage reports whether the programs keep anything of a process.
func hasStorage(t *testing.T, q *query, pid int) bool {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	tasks := q.programs.objects.FollowedTasks
	err = tasks.Lookup(uint32(fd), make([]byte, tasks.ValueSize()))
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		t.Fatal(err)
	}
	return err == nil
}

// Of servers that share series one is left out, and the others are not.
func TestQueryDenyBeyondLimit(t *testing.T) {
	start := func(name string) *servertest.Postgres {
		return servertest.StartPostgres(t, map[string]string{"cluster_name": name, "fsync": "off"}, nil)
	}
	start("first")
	q := startQueryWith(t, Options{Deny: "denied", MaxServers: 1})
	querytest.WaitForServer(t, q, "first")
	kept, denied := start("kept"), start("denied")
	conn := denied.Connect(t)
	waitDenied(t, q, 1)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if !hasStorage(t, q, kept.PID) {
			return errors.New("the other one is not followed")
		}
		return nil
	})
	for _, pid := range []int{denied.PID, int(conn.PgConn().PID())} {
		if hasStorage(t, q, pid) {
			t.Errorf("process %d has storage", pid)
		}
	}
	got := querytest.During(t, q, collector.OtherServer, 100, func() {
		for range 100 {
			querytest.Run(t, conn, "select 1")
		}
		denied.Bench(t, "select 1;\n", "-C", "-c", "2", "-t", "50")
		kept.Bench(t, "select 1;\n", "-t", "100")
	})
	querytest.WantCounts(t, got, map[string]uint64{"select": 100})
}

func TestQueryDenyRefused(t *testing.T) {
	if _, err := New(collector.Options{Log: slog.New(slog.DiscardHandler)}, Options{Deny: "("}); err == nil {
		t.Error("an expression that is none is taken")
	}
}
