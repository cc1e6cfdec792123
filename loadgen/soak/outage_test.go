package soak

import (
	"fmt"
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/internal/testdb"
	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/loadgen/result"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A soak keeps each outage once: with the sample in which it ended, or as not over with the load's last.
func TestOutagesAreKept(t *testing.T) {
	t.Parallel()
	db := testdb.StartPostgres(t)
	folder := t.TempDir()
	stop := start(t, folder, Plan{Duration: time.Hour, Interval: 100 * time.Millisecond, Canary: Load{"simple-ping", 50, 2, 1},
		Targets: []matrix.Target{{StorageClass: "local", Engine: "postgres", DSN: db.DSN()}}})
	kept := func() (all []result.Outage, completed, failed uint64) {
		for _, s := range read(t, folder).Samples {
			all, completed, failed = append(all, s.Outages...), completed+s.Completed, failed+s.Failed
		}
		return all, completed, failed
	}
	await := func(what string, f func(all []result.Outage, completed, failed uint64) bool) {
		t.Helper()
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			all, completed, failed := kept()
			if !f(all, completed, failed) {
				return fmt.Errorf("no %s yet: outages %v, %d completed, %d failed", what, all, completed, failed)
			}
			return nil
		})
	}
	await("commits", func(_ []result.Outage, completed, _ uint64) bool { return completed >= 20 })
	_, sofar, _ := kept()
	working := time.Now()
	await("more commits", func(_ []result.Outage, completed, _ uint64) bool { return completed >= sofar+20 })
	down := time.Now()
	db.Stop()
	_, _, before := kept()
	await("failures", func(_ []result.Outage, _, failed uint64) bool { return failed > before })
	up := time.Now()
	db.Start()
	await("end of the outage", func(all []result.Outage, _, _ uint64) bool { return len(all) > 0 })
	first, completed, _ := kept()
	await("commits after it", func(_ []result.Outage, now, _ uint64) bool { return now > completed+20 })
	if o := first[0]; !o.Over || o.Seconds < up.Sub(down).Seconds()/2 || o.Began.Before(working.Add(-time.Second)) || len(o.Errors) == 0 {
		t.Errorf("an outage from %s to %s at the least is kept as %+v", down, up, o)
	}
	_, _, before = kept()
	db.Stop()
	await("failures again", func(_ []result.Outage, _, failed uint64) bool { return failed > before })
	stop()
	all, _, _ := kept()
	if last := all[len(all)-1]; last.Over || last.Seconds <= 0 {
		t.Errorf("the outage at the end is kept as %+v", last)
	}
	for i := 1; i < len(all); i++ {
		if !all[i].Began.After(all[i-1].Began) {
			t.Errorf("an outage is kept twice: %+v", all)
		}
	}
}
