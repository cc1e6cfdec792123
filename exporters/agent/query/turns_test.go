package query

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/exporters/agent/server"
)

// decoys are processes with a server's name, the oldest first.
func decoys(n int) []server.Candidate {
	var all []server.Candidate
	for pid := range n {
		all = append(all, server.Candidate{ID: server.ID{PID: pid + 1, StartTicks: uint64(pid + 1)}, DBSystem: server.PostgreSQL})
	}
	return all
}

// turnTaker is a collector that only decides whose turn it is; a look ends at once and finds no server.
type turnTaker struct{ *query }

func newTurns() turnTaker {
	f, _ := testFleet(2)
	return turnTaker{&query{fleet: f, looking: map[server.ID]bool{}, tried: map[server.ID]trial{}}}
}

func (u turnTaker) walk(candidates []server.Candidate, reported bool, now time.Time) (looked map[server.ID]bool, skipped int) {
	due, skipped := u.due(candidates, reported, now)
	looked = map[server.ID]bool{}
	for _, c := range due {
		looked[c.ID] = true
		delete(u.looking, c.ID)
	}
	return looked, skipped
}

// However many processes there are that only have a server's name, one that began after them gets its turn, and those
// that wait for theirs are counted.
func TestTurnsBehindDecoys(t *testing.T) {
	u := newTurns()
	all := decoys(3*maxLooks + 1)
	youngest := all[len(all)-1].ID
	now := begin
	for walk := range 4 {
		looked, skipped := u.walk(all, false, now)
		if len(looked) > maxLooks || len(looked)+skipped > len(all) {
			t.Errorf("walk %d: %d looks, %d skipped", walk, len(looked), skipped)
		}
		if walk == 0 && skipped != len(all)-maxLooks {
			t.Errorf("%d processes are skipped at first, want %d", skipped, len(all)-maxLooks)
		}
		if got := looked[youngest]; got != (walk == 3) {
			t.Errorf("walk %d looks at the youngest: %v", walk, got)
		}
		now = now.Add(defaultScanInterval)
	}
	// From then on all of them get their turns, again and again.
	seen := map[int]int{}
	for range 40 {
		looked, _ := u.walk(all, false, now)
		for id := range looked {
			seen[id.PID]++
		}
		now = now.Add(defaultScanInterval)
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d processes were looked at", len(seen), len(all))
	}
}

// Looks that do not end leave no room for those of later walks; what the kernel reports does not wait for them.
func TestTurnsBehindLooks(t *testing.T) {
	u := newTurns()
	all := decoys(2 * maxLooks)
	followed := running(1, "a", 1)
	u.fleet.update([]observation{followed}, begin)
	now := begin.Add(lookAgain)
	if due, skipped := u.due(all, false, now); len(due) != maxLooks+1 || skipped != maxLooks-1 {
		t.Fatalf("%d looks at first, %d skipped", len(due), skipped)
	}
	now = now.Add(defaultScanInterval)
	if due, skipped := u.due(all, false, now); len(due) != 0 || skipped != maxLooks-1 {
		t.Errorf("while none has ended %d looks more, %d skipped", len(due), skipped)
	}
	delete(u.looking, all[1].ID)
	if due, skipped := u.due(all, false, now.Add(time.Second)); len(due) != 1 || skipped != maxLooks-1 {
		t.Errorf("after the end of one %d looks more, %d skipped", len(due), skipped)
	}
	if due, _ := u.due(all[len(all)-1:], true, now); len(due) != 1 {
		t.Error("what the kernel reports has to wait")
	}
}

// What is no server costs less and less, and is looked at immediately when the kernel reports it. A server that is
// followed does not have to wait for others.
func TestTurnsOfOne(t *testing.T) {
	u := newTurns()
	one := decoys(1)
	looks := 0
	now := begin
	for range 60 {
		looked, _ := u.walk(one, false, now)
		looks += len(looked)
		now = now.Add(defaultScanInterval)
	}
	if looks < 15 || looks > 30 {
		t.Errorf("%d looks in ten minutes", looks)
	}
	u.walk(one, true, now)
	if looked, _ := u.walk(one, false, now); len(looked) != 0 {
		t.Error("it is looked at twice at once")
	}
	if looked, _ := u.walk(one, true, now); len(looked) != 1 {
		t.Error("it is not looked at when the kernel reports it")
	}
	all := decoys(2 * maxLooks)
	followed := running(len(all), "a", 1)
	u.fleet.update([]observation{followed}, now)
	now = now.Add(lookAgain)
	if looked, _ := u.walk(all, false, now); !looked[followed.ID] || len(looked) != maxLooks+1 {
		t.Errorf("%d looks, at the one that is followed: %v", len(looked), looked[followed.ID])
	}
}
