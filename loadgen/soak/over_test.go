package soak

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plumbline/plumbline/loadgen/matrix"
	"github.com/plumbline/plumbline/tests/testkit"
)

// unreachedPlan is one on a server that is never there.
func unreachedPlan(t *testing.T, faults ...Fault) Plan {
	t.Helper()
	return Plan{Duration: time.Hour, Interval: 100 * time.Millisecond, Canary: Load{"simple-ping", 50, 2, 1}, Faults: faults,
		Targets: []matrix.Target{{StorageClass: "gone", Engine: "postgres", DSN: "host=" + t.TempDir()}}}
}

// begun is the folder of a soak that an earlier start began, with its events.
func begun(t *testing.T, plan Plan, began time.Time, events ...Event) (folder string) {
	t.Helper()
	folder = t.TempDir()
	s, _, err := open(folder, plan, began)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		if err := s.event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	return folder
}

// A soak that is over and started again, as a cluster does it, goes on to serve its metrics and writes nothing more.
func TestOverSoakStays(t *testing.T) {
	t.Parallel()
	plan := unreachedPlan(t, Fault{Name: "never done", At: time.Minute, Do: []string{"true"}})
	began := time.Now().Add(-2 * plan.Duration)
	folder := begun(t, plan, began, Event{began, SoakEvent, "soak", Begin, ""}, Event{began.Add(plan.Duration), SoakEvent, "soak", End, Over})
	files := func() (all []string) {
		for _, name := range []string{stateFile, samplesFile, eventsFile} {
			text, err := os.ReadFile(filepath.Join(folder, name))
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, string(text))
		}
		return all
	}
	before := files()
	s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if share := testutil.ToFloat64(s.progress); share != 1 {
			return fmt.Errorf("%v of the soak is over", share)
		}
		return nil
	})
	select {
	case err := <-done:
		t.Fatalf("a soak that was over ended by itself: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if after := files(); !slices.Equal(after, before) {
		t.Errorf("the folder's files were %q and are %q", before, after)
	}
}

// A fault that a soak left when it was over is mended by the next start, at once.
func TestMendedAfterTheEnd(t *testing.T) {
	t.Parallel()
	plan := unreachedPlan(t, Fault{Name: "slow disk", For: 3 * time.Hour, Do: []string{"false"}, Undo: []string{"true"}})
	began := time.Now().Add(-2 * plan.Duration)
	folder := begun(t, plan, began, Event{began, SoakEvent, "soak", Begin, ""}, Event{began, FaultEvent, "slow disk", Begin, ""},
		Event{began.Add(plan.Duration), FaultEvent, "slow disk", Unmended, "no such disk"}, Event{began.Add(plan.Duration), SoakEvent, "soak", End, Over})
	stop := start(t, folder, plan)
	awaitMended(t, folder, "slow disk")
	stop()
	if d := read(t, folder); len(d.Events) != 5 {
		t.Errorf("events %+v, want one more", d.Events)
	}
}

// A fault that came while the soak did not run is reported once, however often it is started after that.
func TestMissedFaultIsReportedOnce(t *testing.T) {
	t.Parallel()
	plan := unreachedPlan(t, Fault{Name: "missed", Do: []string{"false"}}, Fault{Name: "beyond the end", At: 2 * time.Hour, Do: []string{"false"}})
	folder := begun(t, plan, time.Now().Add(-2*time.Minute))
	for range 2 {
		start(t, folder, plan)()
	}
	d := read(t, folder)
	if n := events(d, FaultEvent, "missed", Failed); n != 1 {
		t.Errorf("a fault that was missed is recorded %d times", n)
	}
	if n := events(d, FaultEvent, "beyond the end", Failed); n != 0 {
		t.Errorf("a fault that is not of the soak is recorded %d times", n)
	}
}

// A soak that is stopped before its plan's end was interrupted, also if what it mends lasts beyond that.
func TestMendingBeyondTheEnd(t *testing.T) {
	t.Parallel()
	mending, goOn := filepath.Join(t.TempDir(), "mending"), filepath.Join(t.TempDir(), "go-on")
	undo := fmt.Sprintf("touch %s; for i in $(seq 12000); do [ ! -e %s ] || exit 0; sleep 0.05; done; exit 1", mending, goOn)
	plan := unreachedPlan(t, Fault{Name: "slow disk", For: 30 * time.Minute, Do: []string{"true"}, Undo: []string{"sh", "-c", undo}})
	folder := t.TempDir()
	s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var later, reads atomic.Int64 // by how much the clock is later, and how often it was read
	now := func() time.Time {
		reads.Add(1)
		return time.Now().Add(time.Duration(later.Load()))
	}
	s.clock = clock{now, wallClock.sleep}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- s.Run(ctx)
		close(done)
	}()
	end := func() error {
		cancel()
		err := os.WriteFile(goOn, nil, 0o644)
		return errors.Join(err, <-done)
	}
	t.Cleanup(func() { _ = end() })
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := events(read(t, folder), FaultEvent, "slow disk", Begin); n != 1 {
			return fmt.Errorf("%d beginnings of the fault", n)
		}
		return nil
	})
	before := reads.Load()
	cancel()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if reads.Load() == before {
			return errors.New("the soak does not read the clock to see whether it is over")
		}
		_, err := os.Stat(mending)
		return err
	})
	later.Store(int64(plan.Duration))
	if err := end(); err != nil {
		t.Error(err)
	}
	all := read(t, folder).Events
	if last := all[len(all)-1]; last.Kind != SoakEvent || last.What != End || last.Detail != "interrupted" {
		t.Errorf("the last event is %+v", last)
	}
}

// Starts after the plan's end are no runs. One of a soak that was killed long before it ends the gap with the plan.
func TestStartsAfterTheEnd(t *testing.T) {
	end := evening.Add(24 * time.Hour)
	for name, c := range map[string]struct {
		last   time.Time // sample
		over   bool
		begins []time.Time
	}{
		"over":              {end, true, []time.Time{evening}},
		"killed at the end": {end.Add(-10 * time.Second), false, []time.Time{evening}},
		"killed before":     {end.Add(-time.Hour), false, []time.Time{evening, end}},
	} {
		folder := t.TempDir()
		s, _, err := open(folder, longPlan(1), evening)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.sample(sampleAt(c.last, "r3", 7, time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		all := []Event{{evening, SoakEvent, "soak", Begin, ""}}
		if c.over {
			all = append(all, Event{end, SoakEvent, "soak", End, Over})
		}
		for minutes := range 3 {
			later := end.Add(time.Duration(minutes+1) * time.Minute)
			all = append(all, Event{later, SoakEvent, "soak", Begin, ""}, Event{later, SoakEvent, "soak", End, Over})
		}
		for _, e := range all {
			if err := s.event(e); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.close(); err != nil {
			t.Fatal(err)
		}
		var begins []time.Time
		for _, e := range read(t, folder).Events {
			if e.What == Begin {
				begins = append(begins, e.Time)
			}
		}
		if !slices.EqualFunc(begins, c.begins, time.Time.Equal) {
			t.Errorf("%s: runs from %v, want %v", name, begins, c.begins)
		}
	}
}
