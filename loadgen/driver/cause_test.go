package driver

import (
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/loadgen/adapter"
	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/internal/testload"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// page is a log that may be read while it is written.
type page struct {
	mu   sync.Mutex
	text strings.Builder
}

func (p *page) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.Write(b)
}

func (p *page) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// A server that is gone, does not know the user, or takes no writes: the kind of its errors, the log and the phase
// report it, with every line of the log the cause, and the phase is what it was when the server is back.
func TestCauseOfAnOutage(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t)
	server.Exec("create role guest login password 'right'")
	for name, c := range map[string]struct {
		change func(*Config)
		kind   metrics.ErrorKind
		words  string
	}{
		"gone":    {func(c *Config) { c.DSN = "host=" + testdb.Folder(t) + " user=postgres dbname=postgres" }, metrics.Connection, "no such file or directory"},
		"no user": {func(c *Config) { c.DSN = strings.Replace(c.DSN, "user=postgres", "user=nobody-there", 1) }, metrics.Authentication, "does not exist"},
		"standby": {func(c *Config) {
			c.DSN += " target_session_attrs=read-write options='-c default_transaction_read_only=on'"
		}, metrics.ReadOnly, "read only"},
	} {
		for _, wait := range []bool{false, true} {
			config := Config{DSN: server.DSN(), Rate: 100, Wait: wait}
			c.change(&config)
			r := newRig(t, config)
			var log page
			r.log = slog.New(slog.NewTextHandler(&log, nil))
			stop := testload.Start(t, r.Run)
			testload.Until(t, r.load, name, func(m metrics.Tally) bool { return m.Errors[c.kind] > 6 && m.Phase == metrics.Unserved })
			stop()
			for kind, n := range r.load.Tally().Errors {
				if kind != c.kind && n > 0 {
					t.Errorf("%s: %d errors are %s", name, n, kind)
				}
			}
			if text := log.String(); !strings.Contains(text, c.words) || strings.Contains(text, "not yet time") || !strings.Contains(text, "kind="+string(c.kind)) {
				t.Errorf("%s: the log is\n%s", name, text)
			}
		}
	}
}

// The phase follows the server: down while it is gone, and what it was before when it is back.
func TestPhaseOfAnOutage(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t)
	r := newRig(t, Config{DSN: server.DSN(), Rate: 100})
	stop := testload.Start(t, r.Run)
	is := func(phase metrics.Phase) func(metrics.Tally) bool {
		return func(m metrics.Tally) bool { return m.Phase == phase }
	}
	testload.Await(t, r.load, 50)
	server.Stop()
	testload.Until(t, r.load, "down", is(metrics.Unserved))
	server.Start()
	testload.Until(t, r.load, "steady again", is(metrics.Steady))
	stop()
	if p := r.load.Phase(); p != metrics.Stopped {
		t.Errorf("phase %s at the end", p)
	}
}

// What only takes its time is slow, and not down.
func TestSlowIsNotDown(t *testing.T) {
	o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
	began := time.Now()
	o.failed(metrics.Timeout, true, began, began.Add(10*time.Second))
	if o.down(began.Add(20 * time.Second)) {
		t.Error("a time-out is taken for a server that refuses")
	}
	o.failed(metrics.Storage, false, began, began.Add(11*time.Second))
	if !o.down(began.Add(20*time.Second)) || o.down(began.Add(longOutage/2)) {
		t.Error("a full disk is down after a second")
	}
}

// Whatever a server answers: if it is an error each time and nothing is committed, that is an outage from its first on.
// What fails beside commits is none, whatever its share, nor is a client that gives up.
func TestEveryAnswerIsAnError(t *testing.T) {
	for _, kind := range []metrics.ErrorKind{metrics.Other, metrics.Serialization, metrics.Deadlock} {
		o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
		began := time.Now()
		at := func(s float64) time.Time { return began.Add(time.Duration(s * float64(time.Second))) }
		o.committed(began)
		for s := 0.25; s < 9.9; s += 0.25 {
			o.failed(kind, false, at(s-0.25), at(s))
		}
		if o.refusing(at(9.9)) || o.down(at(9.9)) || !o.began.IsZero() {
			t.Errorf("%s: less than %v are an outage", kind, adapter.RefusedFor)
		}
		o.failed(kind, false, at(9.9), at(10))
		if !o.refusing(at(10)) || !o.down(at(10)) {
			t.Errorf("%s: %v of nothing else, and it is not down", kind, adapter.RefusedFor)
		}
		o.committed(at(12))
		if o.refusing(at(30)) || o.down(at(30)) || len(o.kept) != 1 || o.kept[0].Took != 12*time.Second || o.kept[0].Errors[kind] != 40 {
			t.Errorf("%s: the outages are %+v", kind, o.kept)
		}
		for s := 13.; s < 60; s++ { // one in two
			o.failed(kind, false, at(s), at(s+0.1))
			o.committed(at(s + 0.5))
		}
		for s := 60.; s < 200; s += 20 { // too few to judge by
			o.failed(kind, false, at(s), at(s+0.1))
		}
		if o.down(at(200)) || len(o.kept) != 1 {
			t.Errorf("%s: what fails now and then is an outage: %+v", kind, o.kept)
		}
	}
	// A timeout of the server's own is an answer; the client's is none.
	for _, gaveUp := range []bool{false, true} {
		o := &NewOwnMetrics(prometheus.NewRegistry()).load(metrics.Labels{}).outages
		began := time.Now()
		for s := range 12 {
			o.failed(metrics.Timeout, gaveUp, began, began.Add(time.Duration(s)*time.Second))
		}
		if o.down(began.Add(12*time.Second)) == gaveUp {
			t.Errorf("given up %v, and down is the same", gaveUp)
		}
	}
}

// The canary's tables are gone, as after a restore from before they were made.
func TestTablesGone(t *testing.T) {
	t.Parallel()
	server := testdb.StartPostgres(t)
	server.Exec("create table ledger (id int primary key)")
	r := newRig(t, Config{DSN: server.DSN(), Rate: 20})
	book := &ledger{}
	r.profile = Profile{run: book.run}
	stop := testload.Start(t, r.Run)
	testload.Await(t, r.load, 20)
	server.Exec("alter table ledger rename to elsewhere")
	testload.Until(t, r.load, "down", func(m metrics.Tally) bool { return m.Phase == metrics.Unserved })
	server.Exec("alter table elsewhere rename to ledger")
	testload.Until(t, r.load, "steady again", func(m metrics.Tally) bool { return m.Phase == metrics.Steady })
	stop()
	all, _ := r.Outages()
	if len(all) != 1 || !all[0].Over || all[0].Took < adapter.RefusedFor || all[0].Errors[metrics.Other] < refusedTimes {
		t.Errorf("the outages are %+v", all)
	}
}
