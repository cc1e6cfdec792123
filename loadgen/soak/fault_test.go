package soak

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/plumbline/plumbline/tests/testkit"
)

// begunFault is the event of a fault that an earlier start has done.
func begunFault(name string) Event {
	return Event{time.Now().Add(-time.Minute), FaultEvent, name, Begin, ""}
}

// awaitMended waits for the end of a fault.
func awaitMended(t *testing.T, folder, fault string) {
	t.Helper()
	testkit.Eventually(t, testkit.DefaultTimeout, func() error {
		if n := events(read(t, folder), FaultEvent, fault, End); n != 1 {
			return fmt.Errorf("%d ends of fault %s", n, fault)
		}
		return nil
	})
}

// Mending that fails is retried while the soak runs.
func TestMendingIsTriedAgain(t *testing.T) {
	t.Parallel()
	tally := filepath.Join(t.TempDir(), "tally")
	plan := unreachedPlan(t, Fault{Name: "slow disk", Do: []string{"false"}, Undo: []string{"sh", "-c", "echo try >> " + tally + "; [ $(wc -l < " + tally + ") -ge 3 ]"}})
	folder := begun(t, plan, time.Now().Add(-time.Minute), begunFault("slow disk"))
	stop := start(t, folder, plan)
	awaitMended(t, folder, "slow disk")
	stop()
	if tries, err := os.ReadFile(tally); err != nil || string(tries) != "try\ntry\ntry\n" {
		t.Errorf("mending was tried as %q, %v", tries, err)
	}
	if n := events(read(t, folder), FaultEvent, "slow disk", Unmended); n != 0 {
		t.Errorf("a fault that was mended is recorded as not mended %d times", n)
	}
}

// A fault that cannot be mended has no end, so that the next start mends it.
func TestUnmendedFaultStays(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "flag")
	plan := unreachedPlan(t, Fault{Name: "slow disk", Do: []string{"false"}, Undo: []string{"sh", "-c", "echo no such disk; test -e " + flag}})
	folder := begun(t, plan, time.Now().Add(-time.Minute), begunFault("slow disk"))
	start(t, folder, plan)() // stopped at once: one try
	d := read(t, folder)
	if ends, unmended := events(d, FaultEvent, "slow disk", End), events(d, FaultEvent, "slow disk", Unmended); ends != 0 || unmended != 1 {
		t.Errorf("a fault that was not mended has %d ends and is recorded as not mended %d times", ends, unmended)
	}
	for _, e := range d.Events {
		if e.What == Unmended && !strings.Contains(e.Detail, "no such disk") {
			t.Errorf("why it was not mended is recorded as %q", e.Detail)
		}
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	stop := start(t, folder, plan)
	awaitMended(t, folder, "slow disk")
	stop()
}

// A fault that could not be done, in this start or an earlier one, ends also if it cannot be mended: there may be
// nothing to mend.
func TestNotDoneNorMended(t *testing.T) {
	t.Parallel()
	plan := unreachedPlan(t, Fault{Name: "slow disk", For: 30 * time.Minute, Do: []string{"sh", "-c", "echo no such disk; exit 3"},
		Undo: []string{"sh", "-c", "echo nothing to mend; exit 4"}})
	begin := begunFault("slow disk")
	failed := Event{begin.Time, FaultEvent, "slow disk", Failed, "sh: exit status 3: no such disk"}
	for name, earlier := range map[string][]Event{"this start": nil, "an earlier start": {begin, failed}} {
		folder := begun(t, plan, time.Now().Add(-time.Minute), earlier...)
		stop := start(t, folder, plan)
		testkit.Eventually(t, testkit.DefaultTimeout, func() error {
			if n := events(read(t, folder), FaultEvent, "slow disk", Failed); n != 1 {
				return fmt.Errorf("the fault has failed %d times", n)
			}
			return nil
		})
		stop() // mended once
		d := read(t, folder)
		if ends, unmended := events(d, FaultEvent, "slow disk", End), events(d, FaultEvent, "slow disk", Unmended); ends != 1 || unmended != 0 {
			t.Errorf("%s: %d ends, recorded as not mended %d times", name, ends, unmended)
		}
		for _, e := range d.Events {
			if e.Kind == FaultEvent && e.What == End && (!strings.Contains(e.Detail, failed.Detail) || !strings.Contains(e.Detail, "sh: exit status 4: nothing to mend")) {
				t.Errorf("%s: the end is recorded as %q", name, e.Detail)
			}
		}
	}
}

// A fault without a length, whose time a suspended machine sees late, is done if that is no later than a timer may be,
// and missed else.
func TestLateFault(t *testing.T) {
	plan := unreachedPlan(t, Fault{Name: "short", At: 30 * time.Second, Do: []string{"true"}})
	for late, done := range map[time.Duration]bool{40 * time.Second: true, 2 * time.Minute: false} {
		folder := begun(t, plan, evening)
		s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{wall: evening, suspended: map[int]time.Duration{1: late}}
		s.clock = clock{m.now, m.sleep}
		if got, failed := s.do(t.Context(), plan.Faults[0]); got != done || failed != "" {
			t.Errorf("%s late: done %v, want %v; %s", late, got, done, failed)
		}
		if err := s.store.close(); err != nil {
			t.Error(err)
		}
		d := read(t, folder)
		if begins, missed := events(d, FaultEvent, "short", Begin) == 1, events(d, FaultEvent, "short", Failed) == 1; begins != done || missed == done {
			t.Errorf("%s late: events %+v", late, d.Events)
		}
	}
}

// A fault whose beginning a full disk does not take is not done: after a kill nothing would mend it. The next start does
// it neither, however early that is.
func TestUnrecordedFault(t *testing.T) {
	for name, more := range map[string]int{"for good": 0, "for the beginning alone": 1 << 20} {
		t.Run(name, func(t *testing.T) {
			flag := filepath.Join(t.TempDir(), "done")
			plan := unreachedPlan(t, Fault{Name: "slow disk", Do: []string{"touch", flag}})
			folder := begun(t, plan, time.Now())
			s, err := Open(folder, plan, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			disk := &filling{File: s.store.events.on.(*os.File), later: more}
			s.store.events.on = disk
			s.fault(t.Context(), plan.Faults[0])
			if _, err := os.Stat(flag); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a fault that is not recorded is done: %v", err)
			}
			if n := testutil.ToFloat64(s.unsaved); n < 1 || testutil.ToFloat64(s.faults.WithLabelValues("slow disk")) != 0 {
				t.Errorf("%v events are counted as lost, and the fault is reported as in effect", n)
			}
			if err := s.store.close(); err != nil {
				t.Error(err)
			}
			if more == 0 {
				return
			}
			start(t, folder, plan)()
			d := read(t, folder)
			if begins, failed := events(d, FaultEvent, "slow disk", Begin), events(d, FaultEvent, "slow disk", Failed); begins != 0 || failed != 1 {
				t.Errorf("events %+v", d.Events)
			}
		})
	}
}

// The pauses between tries to mend grow, and are bounded.
func TestMendingPauses(t *testing.T) {
	for interval, all := range map[time.Duration]time.Duration{10 * time.Second: 20*time.Minute + 30*time.Second, time.Hour: 70 * time.Minute} {
		m := &machine{wall: evening}
		s := &Soak{plan: Plan{Interval: interval}, clock: clock{m.now, m.sleep}, log: slog.New(slog.DiscardHandler)}
		if err := s.mend(t.Context(), Fault{Name: "slow disk", Undo: []string{"false"}}); err == nil {
			t.Error("what cannot be mended is")
		}
		if got := m.wall.Sub(evening); got != all || m.waits != mendTries-1 || m.longest > longestPause {
			t.Errorf("of %s it is tried for %s, want %s, with %d pauses, the longest of %s", interval, got, all, m.waits, m.longest)
		}
	}
}
