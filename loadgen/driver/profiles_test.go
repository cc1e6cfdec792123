package driver

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/metrics"
)

// Every profile does its work on both engines, through a restart of the server.
func TestProfilesOnRealServers(t *testing.T) {
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartPostgres(t)
		profilesOn(t, "postgres", db.DSN(), db.Stop, db.Start, db.Count)
	})
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		db := testdb.StartMariaDB(t)
		profilesOn(t, "mysql", db.DSN(), db.Stop, db.Start, db.Count)
	})
}

func profilesOn(t *testing.T, engine, dsn string, stopServer, startServer func(), count func(string) int) {
	r := newRig(t, Config{Engine: engine, DSN: dsn, Profile: "kv-select"})
	for range 2 { // the second time there is nothing to do
		if err := r.Init(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := count("select count(*) from loadgen_accounts"); n != accountsPerScale {
		t.Fatalf("%d accounts, want %d", n, accountsPerScale)
	}
	for name := range Profiles {
		rate := 100.0
		if name == "seqscan" {
			rate = 10
		}
		r := newRig(t, Config{Engine: engine, DSN: dsn, Profile: name, Rate: rate})
		stop := r.start(t)
		r.await(t, name, func(m metrics.Tally) bool { return m.Completed >= uint64(rate) })
		stop()
		if got := r.balance(t); len(got.Errors) > 0 {
			t.Errorf("%s: errors %v", name, got.Errors)
		}
	}
	if n := count("select count(*) from loadgen_history"); n != historyRows {
		t.Errorf("%d rows of history, want always %d", n, historyRows)
	}
	if sum := count("select cast(sum(balance) as int) from loadgen_accounts") - count("select cast(sum(balance) as int) from loadgen_branches"); sum != 0 {
		t.Errorf("accounts and branches differ by %d: a transaction was done by half", sum)
	}

	r = newRig(t, Config{Engine: engine, DSN: dsn, Profile: "tpcb-like", Rate: 100})
	stop := r.start(t)
	r.await(t, "a working load", func(m metrics.Tally) bool { return m.Completed >= 50 })
	stopServer()
	r.await(t, "errors", func(m metrics.Tally) bool { return m.Errors[metrics.Connection] >= 20 })
	startServer()
	before := r.load.Tally().Completed
	r.await(t, "recovery", func(m metrics.Tally) bool { return m.Completed >= before+100 })
	stop()
	got := r.balance(t)
	if failed := got.Offered - got.Completed - got.Skipped[metrics.End]; got.Response.Above(19*time.Second) != failed {
		t.Errorf("%d failed, %d counted as slow: one that fails fast is slow too", failed, got.Response.Above(19*time.Second))
	}
}
