package soak

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/plumbline/plumbline/tests/testkit"
)

// The three clocks show what happened to the machine.
func TestJump(t *testing.T) {
	before := moment{evening, time.Hour, 2 * time.Hour}
	at := func(seconds int) time.Time { return evening.Add(time.Duration(seconds) * time.Second) }
	for _, c := range []struct {
		what               string
		awake, since, wall time.Duration
		name, detail       string
		from, to           time.Time
	}{
		{"nothing", 10 * time.Second, 10 * time.Second, 10*time.Second + 500*time.Millisecond, "", "", time.Time{}, time.Time{}},
		{"late, on a busy machine", time.Minute, time.Minute, time.Minute, "", "", time.Time{}, time.Time{}},
		{"suspended", 10 * time.Second, 310 * time.Second, 310 * time.Second, Suspended, "for 5m0s", at(0), at(310)},
		{"suspended, and the clock corrected", 10 * time.Second, 310 * time.Second, 400 * time.Second, Suspended, "for 5m0s, and the clock was set by 1m30s", at(0), at(400)},
		{"set forward", 10 * time.Second, 10 * time.Second, 20 * time.Second, ClockSet, "forward by 10s", at(0), at(20)},
		{"set back", 10 * time.Second, 10 * time.Second, -50 * time.Second, ClockSet, "back by 1m0s", at(-50), at(0)},
	} {
		name, detail, from, to := moment{before.wall.Add(c.wall), before.awake + c.awake, before.since + c.since}.jump(before)
		if name != c.name || detail != c.detail || !from.Equal(c.from) || !to.Equal(c.to) {
			t.Errorf("%s: %q %q from %s to %s", c.what, name, detail, from, to)
		}
	}
	if now, err := presently(); err != nil || now.since < now.awake-time.Second || now.awake <= 0 {
		t.Errorf("%+v, %v", now, err)
	}
}

// A machine that was suspended while a soak ran is in its folder, once, with its times.
func TestSuspendIsNoted(t *testing.T) {
	plan := unreachedPlan(t)
	folder := t.TempDir()
	s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	s.presently = func() (moment, error) {
		m, err := presently()
		if requests.Add(1) > 2 {
			m.since += time.Hour
			m.wall = m.wall.Add(time.Hour)
		}
		return m, err
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.sample(ctx)
	}()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := requests.Load(); n < 5 {
			return fmt.Errorf("the clocks were read %d times", n)
		}
		return nil
	})
	stop()
	<-done
	if err := s.store.close(); err != nil {
		t.Fatal(err)
	}
	all := read(t, folder).Events
	if len(all) != 2 || all[0].What != Begin || all[1].What != End || all[0].Kind != MachineEvent || all[0].Name != Suspended || all[0].Detail != "for 1h0m0s" {
		t.Fatalf("events %+v", all)
	}
	if took := all[1].Time.Sub(all[0].Time); took < time.Hour || took > time.Hour+time.Minute {
		t.Errorf("it is recorded to have lasted %s", took)
	}
}
