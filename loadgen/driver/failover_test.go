package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
	"github.com/plumbline/plumbline/tests/testkit"
)

// ledger is a profile that writes a number of its own in each transaction and knows which of them were reported as
// committed.
type ledger struct {
	mu        sync.Mutex
	tried     int
	committed []int
}

func (l *ledger) run(ctx context.Context, c conn, _ task) error {
	l.mu.Lock()
	l.tried++
	id := l.tried
	l.mu.Unlock()
	if err := c.Exec(ctx, "insert into ledger values (?)", id); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.committed = append(l.committed, id)
	return nil
}

// TestFailover: the primary crashes, its synchronous standby is promoted. No commit that was reported is lost, what was
// due meanwhile counts with its waiting time, and the outage is as long as it was.
func TestFailover(t *testing.T) {
	const rate = 100
	primary := testdb.StartPostgres(t)
	primary.Exec("create table ledger (id int primary key)")
	standby := testdb.StartStandby(t, primary)

	// The standby first: it answers, but takes no writes.
	r := newRig(t, Config{DSN: standby.DSN(), Others: []string{primary.DSN()}, Wait: true, Rate: rate})
	book := &ledger{}
	r.profile = Profile{run: book.run}
	stop := r.start(t)
	r.await(t, "200 commits", func(m metrics.Tally) bool { return m.Completed >= 200 })
	if got := r.load.Tally(); len(got.Errors) > 0 {
		t.Errorf("errors before anything broke: %v", got.Errors)
	}
	atRest := r.load.Tally()
	before, completed := time.Now(), atRest.Completed
	r.await(t, "commits", func(m metrics.Tally) bool { return m.Completed > completed+1 })
	primary.Stop()
	down := time.Now()
	completed = r.load.Tally().Completed
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if age := r.own.unanswered.age(time.Now()); age < 2*time.Second {
			return fmt.Errorf("the oldest has waited for %v", age)
		}
		return nil
	})
	if got := r.load.Tally(); got.Completed > completed+4 || got.Errors[metrics.Connection] == 0 {
		t.Errorf("%d commits without a primary, errors %v", got.Completed-completed, got.Errors)
	}
	during, _ := r.Outages()
	if n := len(during); n == 0 || during[n-1].Over || during[n-1].Took < time.Second {
		t.Errorf("while it lasts the outages are %v", during)
	}
	promoting := time.Now()
	standby.Promote()
	r.await(t, "commits", func(m metrics.Tally) bool { return m.Completed > completed+4 })
	back := time.Now()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if age := r.own.unanswered.age(time.Now()); age > 500*time.Millisecond {
			return fmt.Errorf("the oldest has waited for %v", age)
		}
		return nil
	})
	drained, answered := time.Now(), r.load.Tally()
	offered := answered.Offered
	r.await(t, "two seconds after", func(m metrics.Tally) bool { return m.Offered >= offered+2*rate })
	stop()

	// Commits: each that was reported is there; what is there besides was under way when the primary died.
	got := r.load.Tally()
	if n := uint64(len(book.committed)); n != got.Completed || n < 400 {
		t.Errorf("%d commits, %d completed", n, got.Completed)
	}
	for _, id := range book.committed {
		if standby.Count(fmt.Sprint("select count(*) from ledger where id = ", id)) != 1 {
			t.Errorf("commit %d was reported, and the new primary does not have it", id)
		}
		if t.Failed() {
			break
		}
	}
	failed := got.Offered - got.Completed - got.Skipped[metrics.Late] - got.Skipped[metrics.Down] - got.Skipped[metrics.End]
	if there := uint64(standby.Count("select count(*) from ledger")); there < got.Completed || there > got.Completed+failed {
		t.Errorf("%d rows for %d commits and %d failures", there, got.Completed, failed)
	}
	if got.Skipped[metrics.Late]+got.Skipped[metrics.Down] != 0 || failed > 4 || failed == 0 {
		t.Errorf("skipped %v, %d failed; want none and one for each connection at the most", got.Skipped, failed)
	}

	// The outage, within what was seen from outside.
	all, after := r.Outages()
	var longest Outage
	sum := 0.0
	for _, o := range all {
		sum += o.Took.Seconds()
		if o.Took > longest.Took {
			longest = o
		}
	}
	least, most := promoting.Sub(down)-2*time.Second/rate, back.Sub(before)
	t.Logf("outage of %v, %v, in all %.3f s; it must be between %v and %v", longest.Took, longest.Errors, sum, least, most)
	if longest.Took < least || longest.Took > most || !longest.Over || longest.Errors[metrics.Connection] < 4 || sum > most.Seconds() {
		t.Errorf("outages %v", all)
	}
	if counted := testutil.ToFloat64(r.own.outages.without); counted < least.Seconds() || counted > sum+0.001 {
		t.Errorf("counted are %.3f s of %.3f s", counted, sum)
	}

	// Open loop: half of what was due while there was no primary waited for more than half of that time.
	if got.Response.Count() != got.Offered || got.Service.Count() != got.Completed {
		t.Errorf("%d response times of %d offered, %d service times of %d completed", got.Response.Count(), got.Offered, got.Service.Count(), got.Completed)
	}
	half := promoting.Sub(down) / 2
	// Without those of before and after, which a machine that pauses lets wait, too.
	waited := float64(answered.Response.Above(half)) - float64(atRest.Response.Above(half))
	if low, high := half.Seconds()*rate*0.9-float64(failed), (drained.Sub(before)-half).Seconds()*rate*1.1+float64(failed)+2; waited < low || waited > high {
		t.Errorf("%v waited for more than %v, want %.0f to %.0f", waited, half, low, high)
	}
	if n := after.Count(); n < 2*rate-20 || n > got.Offered-uint64(promoting.Sub(down).Seconds()*rate*0.9) {
		t.Errorf("%d response times of after the outage", n)
	}
	// The wait was not for want of connections.
	if after.Quantile(0.5) > half {
		t.Errorf("after the outage half took more than %v", after.Quantile(0.5))
	}
}

// TestMadeReadOnly: a server that stops taking writes is left, and taken again when it does.
func TestMadeReadOnly(t *testing.T) {
	server := testdb.StartPostgres(t)
	server.Exec("create table ledger (id int primary key)")
	nobody := "host=" + testdb.Folder(t) + " user=postgres dbname=postgres"
	r := newRig(t, Config{DSN: server.DSN(), Others: []string{nobody}, Wait: true, Rate: 100})
	book := &ledger{}
	r.profile = Profile{run: book.run}
	stop := r.start(t)
	r.await(t, "50 commits", func(m metrics.Tally) bool { return m.Completed >= 50 })
	set := func(to string) {
		server.Exec("alter system set default_transaction_read_only = " + to)
		server.Exec("select pg_reload_conf()")
	}
	set("on")
	r.await(t, "errors", func(m metrics.Tally) bool { return m.Errors[metrics.ReadOnly] > 8 && m.Phase == metrics.Unserved })
	set("off")
	before := r.load.Tally().Completed
	r.await(t, "commits again", func(m metrics.Tally) bool { return m.Completed >= before+100 })
	stop()
	got := r.load.Tally()
	// What else is counted so are tries to connect.
	if n := got.Offered - got.Completed - got.Skipped[metrics.Late] - got.Skipped[metrics.Down] - got.Skipped[metrics.End]; n > 4 || n == 0 {
		t.Errorf("%d transactions met a read-only server; each connection has to leave it at its first", n)
	}
	if n := server.Count("select count(*) from ledger"); uint64(n) != got.Completed {
		t.Errorf("%d rows of %d commits", n, got.Completed)
	}
}

// A MySQL server that takes no writes is not taken, and distinguished from one that is not there.
func TestMySQLReadOnly(t *testing.T) {
	db := testdb.StartMariaDB(t)
	s, err := newServers("mysql", []string{"test@unix(" + testdb.Folder(t) + "/none)/test", db.DSN()})
	if err != nil {
		t.Fatal(err)
	}
	c, n, err := s.dial(t.Context())
	if err != nil || n != 1 || s.first.Load() != 1 {
		t.Fatalf("server %d, %v; it is %d that is tried first", n, err, s.first.Load())
	}
	defer c.Close()
	s.lost(0) // of another worker, which had it before
	if s.first.Load() != 1 {
		t.Error("a loss of one server moved on from another")
	}
	db.Admin("set global read_only = on")
	if _, _, err = s.dial(t.Context()); !errors.Is(err, adapter.ErrReadOnly) {
		t.Errorf("a read-only server: %v", err)
	}
	db.Admin("set global read_only = off")
	if c, _, err := s.dial(t.Context()); err != nil {
		t.Error(err)
	} else {
		c.Close()
	}
}

// Without Wait what is due in an outage fails at once, and it is an outage all the same; what waits
// at the end is skipped.
func TestOutageEnds(t *testing.T) {
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("wait=", wait), func(t *testing.T) {
			r := newRig(t, Config{DSN: "host=" + testdb.Folder(t) + " user=postgres dbname=postgres", Wait: wait})
			stop := testload.Start(t, r.Run)
			r.await(t, "errors", func(m metrics.Tally) bool { return m.Offered > 100 && m.Errors[metrics.Connection] > 4 })
			stop()
			got := r.load.Tally()
			all, after := r.Outages()
			if len(all) != 1 || all[0].Over || after.Count() != 0 || got.Completed != 0 || got.Response.Count() != got.Offered {
				t.Errorf("outages %v, tally %+v", all, got)
			}
			if wait != (got.Skipped[metrics.Down] == got.Offered) {
				t.Errorf("of %d offered %v were skipped", got.Offered, got.Skipped)
			}
		})
	}
}

// What an outage is, without a server.
func TestOutages(t *testing.T) {
	own := NewOwnMetrics(prometheus.NewRegistry())
	o := &own.load(metrics.Labels{}).outages
	start := time.Now()
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	want := func(seconds float64, outages int) {
		t.Helper()
		if got := testutil.ToFloat64(o.without); got < seconds-1e-6 || got > seconds+1e-6 || len(o.kept) != outages {
			t.Errorf("%v s without a commit, outages %v; want %v s, %d", got, o.kept, seconds, outages)
		}
	}
	o.committed(at(1))
	o.failed(metrics.Deadlock, false, at(1), at(2))
	o.committed(at(2))
	want(0, 0)
	o.failed(metrics.Timeout, true, at(1), at(11)) // due before the last commit
	want(9, 0)
	o.tick(at(12))
	want(10, 0)
	o.failed(metrics.Connection, false, at(11.5), at(11.6))
	want(10, 0) // reported late, counted already
	o.committed(at(11.9))
	want(10, 1) // the clock of the counter never goes back
	if !o.waitedIn(at(11)) || o.waitedIn(at(12)) {
		t.Error("what was due before the end has waited for it, what is due after it has not")
	}
	for _, due := range []float64{11, 12, 71, 73} {
		o.answered(at(due), time.Second)
	}
	if n := o.settled.Count(); n != 2 {
		t.Errorf("%d response times are of the minute after", n)
	}
	o.failed(metrics.ReadOnly, false, at(80), at(80.1))
	o.stop(at(81))
	want(11, 2)
	if last := o.kept[1]; last.Over || last.Took != time.Second || last.Errors[metrics.ReadOnly] != 1 {
		t.Errorf("the last is %v", last)
	}
}

// begunLate returns a moment as a load has it that began when the wall clock was an hour behind: now by the monotonic
// clock, an hour ago by the wall clock. That is how package time keeps it: seconds in the wall field's upper bits.
func begunLate(t *testing.T, now time.Time) time.Time {
	t.Helper()
	late := now
	(*struct{ wall uint64 })(unsafe.Pointer(&late)).wall -= 3600 << 30
	if late.Sub(now) != 0 || late.Round(0).Sub(now.Round(0)) != -time.Hour {
		t.Fatalf("package time keeps times in another way: %v beside %v", late, now)
	}
	return late
}

// After the clock was set an outage has the date of the samples and events beside it, not the one of the clock of the
// load's beginning.
func TestOutageAfterTheClockWasSet(t *testing.T) {
	now := time.Now()
	due := begunLate(t, now).Add(-2 * time.Second)
	for _, over := range []bool{false, true} {
		o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
		o.failed(metrics.Timeout, true, due, now)
		if over {
			o.committed(now.Add(time.Second))
		} else {
			o.stop(now.Add(time.Second))
		}
		got := o.kept[0].Result()
		if want := now.Add(-2 * time.Second).UTC(); !got.Began.Equal(want) || got.Seconds != 3 || got.Over != over {
			t.Errorf("outage %+v, want one of 3 s from %v on", got, want)
		}
	}
}

// Errors of the server's storage are an outage; those of a statement are none.
func TestStorageErrors(t *testing.T) {
	for _, c := range []struct {
		err  error
		want metrics.ErrorKind
	}{
		{&pgconn.PgError{Severity: "ERROR", Code: "53100"}, metrics.Storage}, // could not extend file: no space left on device
		{&pgconn.PgError{Severity: "ERROR", Code: "58030"}, metrics.Storage},
		{&pgconn.PgError{Severity: "FATAL", Code: "58030"}, metrics.Storage},
		{&pgconn.PgError{Severity: "ERROR", Code: "XX001"}, metrics.Storage},
		{&pgconn.PgError{Severity: "ERROR", Code: "XX000"}, metrics.Other},
		{&pgconn.PgError{Severity: "ERROR", Code: "53200"}, metrics.Other}, // out of memory
		{&mysql.MySQLError{Number: 1021}, metrics.Storage},
		{&mysql.MySQLError{Number: 1030}, metrics.Storage},
		{&mysql.MySQLError{Number: 1114}, metrics.Storage},
		{&mysql.MySQLError{Number: 1062}, metrics.Other}, // duplicate key
	} {
		kind := adapter.Kind(t.Context(), fmt.Errorf("update: %w", c.err))
		if kind != c.want {
			t.Errorf("%v is %s, want %s", c.err, kind, c.want)
		}
		o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
		began := time.Now()
		o.failed(kind, false, began, began.Add(time.Second))
		o.committed(began.Add(3 * time.Second))
		if storage := c.want == metrics.Storage; storage != (len(o.kept) == 1) || storage && (o.kept[0].Took != 3*time.Second || o.kept[0].Errors[metrics.Storage] != 1) {
			t.Errorf("after %v the outages are %+v", c.err, o.kept)
		}
	}
}
