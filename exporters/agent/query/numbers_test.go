package query

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/collector"
	"github.com/plumbline/plumbline/exporters/agent/query/querytest"
)

// Processes that outlive their server count for it, and for nobody else: its number is another server's only when
// nobody bears it any more. Until then there is no room, which is reported.
func TestNumberOfOrphans(t *testing.T) {
	f, k := testFleet(1)
	first := running(1, "first", 1)
	f.update([]observation{first}, begin)
	number := f.tracked[first.ID].number
	k.selects[number], k.marked[number] = 3, 1
	victim := running(2, "victim", 2)
	f.update([]observation{victim}, begin.Add(time.Second))
	if got := f.labels(); !slices.Equal(got, []string{collector.OtherServer}) || f.overflows != 1 {
		t.Errorf("labels %q, %d overflows: want the victim to have no number while an orphan has it", got, f.overflows)
	}
	k.selects[number] = 2 // the orphan's
	c := &collected{f: f}
	if got := querytest.Collect(t, c, "first").Counts["select"]; got != 5 {
		t.Errorf("%d statements of the first server, want 3 and its orphan's 2", got)
	}
	k.marked[number] = 0
	next := running(3, "next", 3)
	f.update([]observation{victim, next}, begin.Add(2*time.Second))
	if srv := f.tracked[next.ID]; srv.number != number || srv.label != "next" {
		t.Errorf("the next server is %q with number %d, want number %d", srv.label, srv.number, number)
	}
	k.selects[number] = 7
	for label, want := range map[string]uint64{"first": 5, "next": 7} {
		if got := querytest.Collect(t, c, label).Counts["select"]; got != want {
			t.Errorf("%d statements of %s, want %d", got, label, want)
		}
	}
}

// However many servers are taken over at once while no number is free, the tasks are walked over once for all.
func TestNumbersOfManyByOneWalk(t *testing.T) {
	f, k := testFleet(1)
	first := running(1, "first", 1)
	f.update([]observation{first}, begin)
	k.marked[f.tracked[first.ID].number] = 1
	for pid := range 3 {
		f.update([]observation{running(pid+2, "", 2), running(pid+5, "", 3), running(pid+8, "", 4)}, begin.Add(time.Duration(pid+1)*time.Second))
	}
	if want := 3 * goneAfter; k.walks != want {
		t.Errorf("%d walks for nine servers at three times, want %d", k.walks, want)
	}
}

// One walk that finds nobody frees no number, and one that finds somebody begins anew; an account stays as long as
// somebody counts.
func TestNumberIsFreedByWalks(t *testing.T) {
	f, k := testFleet(2)
	s := running(1, "a", 1)
	f.update([]observation{s}, begin)
	number := f.tracked[s.ID].number
	k.selects[number] = 1
	f.update(nil, begin)
	now := begin
	for step, c := range []struct {
		bearers uint64
		free    bool
	}{{0, false}, {1, false}, {0, false}, {1, false}, {0, false}, {0, true}} {
		var walk snapshot
		walk.tasks[number] = c.bearers
		now = now.Add(collector.KeepTime / 2)
		f.counted(&walk, now)
		f.update(nil, now)
		if got := slices.Contains(f.free, number); got != c.free {
			t.Errorf("step %d: the number is free: %v, want %v", step, got, c.free)
		}
		if len(f.accounts) != 1 {
			t.Errorf("step %d: accounts %v", step, f.accounts)
		}
	}
	f.update(nil, now.Add(collector.KeepTime))
	if len(f.accounts) != 0 {
		t.Errorf("long after there are accounts %v", f.accounts)
	}
}

// What a number's processes did after nothing was kept of their server is reported with the rest.
func TestNumberOfForgottenServer(t *testing.T) {
	f, k := testFleet(2)
	s := running(1, "a", 1)
	f.update([]observation{s}, begin)
	number := f.tracked[s.ID].number
	f.update(nil, begin)
	k.selects[number] = 4
	f.counted(&snapshot{}, begin)
	f.counted(&snapshot{}, begin)
	if got := querytest.Collect(t, &collected{f: f}, collector.OtherServer).Counts["select"]; got != 4 {
		t.Errorf("%d statements of other servers, want 4", got)
	}
}

// The number that is free for longest is given first, and one whose processes may be marked in part is not free.
func TestNumbersInTurn(t *testing.T) {
	f, k := testFleet(3)
	a, b := running(1, "a", 1), running(2, "b", 2)
	f.update([]observation{a}, begin)
	first := f.tracked[a.ID].number
	f.update([]observation{b}, begin)
	f.counted(&snapshot{}, begin)
	f.counted(&snapshot{}, begin)
	second := f.tracked[b.ID].number
	if second == first || !slices.Equal(f.free, []uint32{3, first}) {
		t.Errorf("numbers %d and %d, free are %v", first, second, f.free)
	}
	k.refuse[3] = errors.New("the walk ended early")
	f.update([]observation{b, running(3, "c", 3)}, begin)
	if slices.Contains(f.free, 3) || len(f.leaving) != 1 {
		t.Errorf("after a failure free are %v, %d are leaving", f.free, len(f.leaving))
	}
}
