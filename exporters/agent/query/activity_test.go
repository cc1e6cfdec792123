package query

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/procfs"

	bpf "github.com/plumbline/plumbline/exporters/agent/bpf/query"
	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/disk"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
	"github.com/plumbline/plumbline/exporters/agent/server/servertest"
	"github.com/plumbline/plumbline/tests/rig"
	"github.com/plumbline/plumbline/tests/testkit"
)

// gauges returns a server's gauges by metric and, if it has one, phase.
func gauges(t testing.TB, c collector.Collector, server string) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	for _, f := range collectortest.Gather(t, c) {
		for _, m := range f.Metric {
			l := collectortest.Labels(m)
			if l["server"] != server || m.Gauge == nil {
				continue
			}
			name := f.GetName()
			if l["phase"] != "" {
				name += " " + l["phase"]
			}
			got[name] = max(got[name], m.Gauge.GetValue())
		}
	}
	return got
}

// underWay returns how many of a server's statements are in flight, by phase; none if there are none in any.
func underWay(t testing.TB, c collector.Collector, server string) map[string]float64 {
	t.Helper()
	got, some := gauges(t, c, server), map[string]float64{}
	for _, phase := range phaseNames {
		if n := got["plumbline_query_in_flight "+phase]; n != 0 {
			some[phase] = n
		}
	}
	return some
}

// wantGauge awaits a gauge that ok accepts.
func wantGauge(t testing.TB, c collector.Collector, server, name string, ok func(float64) bool) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		got := gauges(t, c, server)
		if v, there := got[name]; !there || !ok(v) {
			return fmt.Errorf("%s is %v (there: %v) among %v", name, v, there, got)
		}
		return nil
	})
}

func is(want float64) func(float64) bool { return func(v float64) bool { return v == want } }

func above(bound float64) func(float64) bool { return func(v float64) bool { return v > bound } }

// hungLog puts a server's write-ahead log on a disk whose writes and syncs can be made to hang.
func hungLog(t *testing.T, disk **rig.SlowDisk) func(data string) {
	return func(data string) {
		t.Helper()
		dir := t.TempDir()
		d, err := rig.NewSlowDisk(t, dir, 256<<20)
		if err != nil {
			testkit.Skip(t, err.Error())
		}
		*disk = d
		mount := data + "-wal"
		if err := os.Mkdir(mount, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := rig.MountExt4(t, d.Device, mount); err != nil {
			t.Fatal(err)
		}
		querytest.LogOn(t, data, mount)
	}
}

// A disk that stops answering is seen while it does not answer: the commit that waits for it, in
// what, for how long, in which process; and the counters advance meanwhile, not in one burst
// when it answers again.
func TestActivityOnHungDisk(t *testing.T) {
	q := startQuery(t)
	c := collectortest.Start(t)(disk.NewDevice(collectortest.Here()))
	var disk *rig.SlowDisk
	pg := servertest.StartPostgres(t, map[string]string{
		"cluster_name": "hung", "autovacuum": "off", "wal_writer_delay": "10s", "checkpoint_timeout": "1h",
	}, hungLog(t, &disk))
	// It is released before the server is stopped, also if the test fails.
	defer func() {
		disk.Writes.Release()
		disk.Syncs.Release()
	}()
	querytest.WaitForServer(t, q, "hung")
	conn, idle := pg.Connect(t), pg.Connect(t)
	querytest.Run(t, conn, "create table t (i int)")
	querytest.Run(t, idle, "begin")
	querytest.Run(t, idle, "select 1")
	wantGauge(t, q, "hung", "plumbline_query_idle_in_transaction", is(1))
	for _, name := range []string{"plumbline_query_in_flight sync", "plumbline_server_longest_wait_seconds sync"} {
		wantGauge(t, q, "hung", name, is(0)) // the log's writer may sync a last time
	}

	before := querytest.AtRest(t, q, "hung")
	disk.Writes.Hang()
	disk.Syncs.Hang()
	done := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "insert into t values (1)")
		done <- err
	}()
	wantGauge(t, q, "hung", "plumbline_query_in_flight sync", is(1))
	wantGauge(t, q, "hung", "plumbline_server_longest_wait_seconds sync", above(3))
	wantGauge(t, q, "hung", "plumbline_query_oldest_seconds sync", above(3))
	device := filepath.Base(disk.Device)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		inFlight, stalled, _ := collectortest.DeviceValues(t, c, device)
		if inFlight == 0 || stalled <= 3 {
			return fmt.Errorf("%s has %v requests in flight and stalls for %v s", device, inFlight, stalled)
		}
		return nil
	})
	// The counter advances with the clock: one session, so one second a second.
	began := time.Now()
	first := querytest.Collect(t, q, "hung")
	readFor := time.Since(began)
	wantGauge(t, q, "hung", "plumbline_server_longest_wait_seconds sync", above(6))
	pause := time.Since(began)
	last := querytest.Collect(t, q, "hung")
	advanced := last.Phases["insert"]["sync"] - first.Phases["insert"]["sync"]
	if low, high := (pause - readFor).Seconds(), time.Since(began).Seconds(); advanced < low-0.01 || advanced > high+0.01 {
		t.Errorf("sync advanced by %.3f s in %.3f to %.3f s", advanced, low, high)
	}
	if last.Counts["insert"] != 0 {
		t.Errorf("%d inserts ended on a disk that hangs", last.Counts["insert"])
	}
	// From 10 s on the process is named.
	wantGauge(t, q, "hung", "plumbline_server_stuck_process_seconds sync", above(10))

	lastAt := time.Now()
	last = querytest.Collect(t, q, "hung")
	disk.Writes.Release()
	disk.Syncs.Release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	var after querytest.Seen
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		after = querytest.Collect(t, q, "hung")
		if after.Counts["insert"] != 1 {
			return fmt.Errorf("inserts: %v", after.Counts)
		}
		return nil
	})
	if burst, most := after.Phases["insert"]["sync"]-last.Phases["insert"]["sync"], time.Since(lastAt).Seconds(); burst > most+0.01 {
		t.Errorf("sync grew by %.3f s within %.3f s when the disk went on", burst, most)
	}
	got := after.Minus(before)
	querytest.WantCounts(t, got, map[string]uint64{"insert": 1})
	querytest.WantSum(t, got)
	wantShare(t, got, "insert", "sync", 0.9)
	for _, name := range []string{"plumbline_query_in_flight sync", "plumbline_server_longest_wait_seconds sync", "plumbline_query_oldest_seconds sync"} {
		wantGauge(t, q, "hung", name, is(0))
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if _, stalled, _ := collectortest.DeviceValues(t, c, device); stalled != 0 {
			return fmt.Errorf("%s stalls for %v s", device, stalled)
		}
		return nil
	})
	querytest.Run(t, idle, "commit")
	wantGauge(t, q, "hung", "plumbline_query_idle_in_transaction", is(0))

	// The log's writer hangs on its own: no statement waits for it, and it is reported all the same.
	disk.Writes.Hang()
	disk.Syncs.Hang()
	querytest.Run(t, conn, "set synchronous_commit = off")
	querytest.Run(t, conn, "insert into t values (2)")
	wantGauge(t, q, "hung", "plumbline_server_longest_wait_seconds sync", above(1))
	if got := gauges(t, q, "hung"); got["plumbline_query_in_flight sync"] != 0 {
		t.Errorf("a statement is in sync: %v", got)
	}
}

// A session that has ended is no backend any more, even while its server does not reap it.
func TestActivityOfUnreapedSession(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "unreaped", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "unreaped")
	stays, goes := pg.Connect(t), pg.Connect(t)
	querytest.Run(t, stays, "select 1")
	var pid int
	if err := goes.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid); err != nil {
		t.Fatal(err)
	}
	// The server's processes are those of two sessions and its own, and it can neither make nor reap any from now on.
	main := pg.PID
	if err := syscall.Kill(main, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(main, syscall.SIGCONT)
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if state := testkit.ProcessState(t, main); state != "T" {
			return fmt.Errorf("the server is in state %s", state)
		}
		return nil
	})
	// One of an attempt to connect while the server started may still be ending.
	alive := func(v float64) bool { return v == float64(1+children(t, main)) }
	wantGauge(t, q, "unreaped", "plumbline_query_processes", alive)
	before := gauges(t, q, "unreaped")["plumbline_query_processes"]
	if err := goes.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if state := testkit.ProcessState(t, pid); state != "Z" {
			return fmt.Errorf("process %d is in state %s", pid, state)
		}
		return nil
	})
	wantGauge(t, q, "unreaped", "plumbline_query_processes", func(v float64) bool { return v < before && alive(v) })
}

// children counts the processes that have this parent.
func children(t testing.TB, parent int) (n int) {
	t.Helper()
	all, err := procfs.AllProcs()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		// One that has ended meanwhile is no child.
		if stat, err := p.Stat(); err == nil && stat.PPID == parent && stat.State != "Z" {
			n++
		}
	}
	return n
}

// A wait for a lock is distinguished from any other, and so are a slow client and a long query.
func TestActivityNotStorage(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "busy", "autovacuum": "off", "deadlock_timeout": "10min"}, nil)
	querytest.WaitForServer(t, q, "busy")
	holder, waiter, other := pg.Connect(t), pg.Connect(t), pg.Connect(t)
	querytest.Run(t, holder, "create table locked (id int primary key, n int)")
	querytest.Run(t, holder, "insert into locked values (1, 0)")
	querytest.Run(t, holder, "begin")
	querytest.Run(t, holder, "update locked set n = 1")
	background := func(c *pgx.Conn, statement string) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := c.Exec(context.Background(), statement)
			done <- err
		}()
		return done
	}
	blocked := background(waiter, "update locked set n = 2")
	asleep := background(other, "select pg_sleep(3600)")
	wantGauge(t, q, "busy", "plumbline_query_in_flight wait", is(2))
	wantGauge(t, q, "busy", "plumbline_query_blocked_oldest_seconds", above(2))
	wantGauge(t, q, "busy", "plumbline_query_idle_in_transaction_oldest_seconds", above(2))
	got := gauges(t, q, "busy")
	if got["plumbline_query_blocked"] != 1 || got["plumbline_query_idle_in_transaction"] != 1 {
		t.Errorf("one is blocked by one idle in its transaction: %v", got)
	}
	// No storage is blamed for a lock, which would last as long. The server's own processes may wait for a busy disk.
	for _, phase := range []string{"read", "write", "sync"} {
		wantGauge(t, q, "busy", "plumbline_server_longest_wait_seconds "+phase, func(v float64) bool { return v <= 1 })
	}
	querytest.Run(t, holder, "rollback")
	if err := <-blocked; err != nil {
		t.Error(err)
	}
	wantGauge(t, q, "busy", "plumbline_query_blocked", is(0))

	// A session that is ended within its statement leaves its time, but no statement.
	before := querytest.Collect(t, q, "busy")
	wantGauge(t, q, "busy", "plumbline_query_oldest_seconds wait", above(3))
	querytest.Run(t, holder, "select pg_terminate_backend(pid) from pg_stat_activity where query like 'select pg_sleep%'")
	if err := <-asleep; err == nil {
		t.Error("the session was not ended")
	}
	wantGauge(t, q, "busy", "plumbline_query_in_flight wait", is(0))
	after := querytest.Collect(t, q, "busy")
	if after.Phases["select"]["wait"] < before.Phases["select"]["wait"] {
		t.Errorf("wait fell from %v to %v s", before.Phases["select"]["wait"], after.Phases["select"]["wait"])
	}
	if n := after.Counts["select"] - before.Counts["select"]; n != 1 {
		t.Errorf("%d selects ended, want the one that ended the other", n)
	}
}

// MariaDB's transactions, and its threads that wait for a client: they do nothing.
func TestActivityMariaDB(t *testing.T) {
	q := startQuery(t)
	m := servertest.StartMariaDB(t)
	name := defaultName(t, q, m.PID)
	db := m.Open(t, nil)
	ctx := t.Context()
	conn, err := db.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	exec("create table test_t (i int) engine=innodb")
	wantGauge(t, q, name, "plumbline_query_idle_in_transaction", is(0))
	exec("begin")
	exec("insert into test_t values (1)")
	wantGauge(t, q, name, "plumbline_query_idle_in_transaction", is(1))
	if n := underWay(t, q, name); len(n) > 0 {
		t.Errorf("statements under way: %v, and no client requests anything", n)
	}
	exec("commit")
	wantGauge(t, q, name, "plumbline_query_idle_in_transaction", is(0))
	var id int
	if err := conn.QueryRowContext(ctx, "select connection_id()").Scan(&id); err != nil {
		t.Fatal(err)
	}
	slept := make(chan error, 1)
	go func() {
		_, err := conn.ExecContext(ctx, "select sleep(3600)")
		slept <- err
	}()
	wantGauge(t, q, name, "plumbline_query_in_flight wait", is(1))
	wantGauge(t, q, name, "plumbline_query_oldest_seconds wait", above(1))
	if _, err := db.ExecContext(ctx, fmt.Sprintf("kill query %d", id)); err != nil {
		t.Fatal(err)
	}
	<-slept // by an error, or by what it returns then
	wantGauge(t, q, name, "plumbline_query_in_flight wait", is(0))
}

// While statements come and go as fast as they can, no counter ever decreases, and at the end
// the phases still add up to the durations.
func TestActivityMonotonic(t *testing.T) {
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "flood", "autovacuum": "off"}, nil)
	querytest.WaitForServer(t, q, "flood")
	querytest.Run(t, pg.Connect(t), "create table t (i int)")
	done := make(chan struct{})
	go func() {
		defer close(done)
		pg.Bench(t, "begin;\ninsert into t values (1);\ncommit;\nselect 1;\nselect pg_sleep(0.002);\n", "-c", "8", "-t", "300")
	}()
	last := querytest.Collect(t, q, "flood")
	scrapes, seenInFlight := 0, false
	for running := true; running; scrapes++ {
		select {
		case <-done:
			running = false
		default:
		}
		now := querytest.Collect(t, q, "flood")
		for command, phases := range last.Phases {
			for phase, v := range phases {
				if now.Phases[command][phase] < v {
					t.Fatalf("%s of %s fell from %v to %v", phase, command, v, now.Phases[command][phase])
				}
			}
		}
		for _, phase := range phaseNames {
			seenInFlight = seenInFlight || gauges(t, q, "flood")["plumbline_query_in_flight "+phase] > 0
		}
		last = now
	}
	if !seenInFlight {
		t.Errorf("nothing was ever in flight in %d scrapes", scrapes)
	}
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		last = querytest.Collect(t, q, "flood")
		if n := last.Counts["commit"]; n != 8*300 {
			return fmt.Errorf("%d commits of %d", n, 8*300)
		}
		return nil
	})
	querytest.WantSum(t, last)
}

// More processes than fit into one piece of the kernel's answer are all reported.
func TestSnapshotOfMany(t *testing.T) {
	const sessions = 90 // records of 104 bytes; the kernel's first buffer has 8 pages
	q := startQuery(t)
	pg := servertest.StartPostgres(t, map[string]string{"cluster_name": "many", "autovacuum": "off", "max_connections": "420"}, nil)
	querytest.WaitForServer(t, q, "many")
	const all = 4 * sessions
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan struct{}, all)
	for range all {
		go func() {
			defer func() { ended <- struct{}{} }()
			c, err := pgx.Connect(ctx, pg.URL)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close(context.Background())
			_, _ = c.Exec(ctx, "select pg_sleep(3600)")
		}()
	}
	wantGauge(t, q, "many", "plumbline_query_in_flight wait", is(all))
	backends := gauges(t, q, "many")["plumbline_query_processes"]
	if backends < all || backends > all+30 {
		t.Errorf("%v backends, want those of %d sessions and a few of the server's own", backends, all)
	}
	cancel()
	for range all {
		<-ended
	}
	wantGauge(t, q, "many", "plumbline_query_in_flight wait", is(0))
}

// The shape of the kernel's records is the one that is parsed.
func TestParseActivities(t *testing.T) {
	if _, err := parseActivities(make([]byte, 7)); err == nil {
		t.Error("no error for a broken record")
	}
	got, err := parseActivities(nil)
	if err != nil || len(got) != 0 {
		t.Errorf("%v, %v for no records", got, err)
	}
}

// Only the longest of a server's stuck processes are reported by number.
func TestStuckProcessesAreBounded(t *testing.T) {
	var s activity
	for i := range 100 {
		s.add(bpf.QueryActivity{Pid: uint32(i), Phase: uint8(bpf.QueryPhasePHASE_SYNC), WaitNs: uint64(stuckAfter) + uint64(i)})
	}
	s.add(bpf.QueryActivity{Pid: 1000, Phase: uint8(bpf.QueryPhasePHASE_CLIENT), WaitNs: uint64(time.Hour)})
	ch := make(chan prometheus.Metric, 200)
	s.send(ch, accountKey{"a", "postgresql"})
	close(ch)
	n := 0
	for m := range ch {
		if m.Desc() == stuckProcess {
			n++
		}
	}
	if n != maxStuck {
		t.Errorf("%d processes are reported, want %d", n, maxStuck)
	}
}
