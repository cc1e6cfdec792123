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

// turnTaker is a collector that only decides whose turn it is; a scan ends at once and finds no server.
type turnTaker struct{ *query }

func newTurns() turnTaker {
	f, _ := testFleet(2)
	return turnTaker{&query{fleet: f, scans: map[server.ID]bool{}, tried: map[server.ID]trial{}}}
}

func (u turnTaker) walk(candidates []server.Candidate, reported bool, now time.Time) (scanned map[server.ID]bool, skipped int) {
	due, skipped := u.due(candidates, reported, now)
	scanned = map[server.ID]bool{}
	for _, c := range due {
		scanned[c.ID] = true
		delete(u.scans, c.ID)
	}
	return scanned, skipped
}

// However many processes there are that only have a server's name, one that began after them gets its turn, and those
// that wait for theirs are counted.
func TestTurnsBehindDecoys(t *testing.T) {
	u := newTurns()
	all := decoys(3*maxScans + 1)
	youngest := all[len(all)-1].ID
	now := begin
	for walk := range 4 {
		scanned, skipped := u.walk(all, false, now)
		if len(scanned) > maxScans || len(scanned)+skipped > len(all) {
			t.Errorf("walk %d: %d scans, %d skipped", walk, len(scanned), skipped)
		}
		if walk == 0 && skipped != len(all)-maxScans {
			t.Errorf("%d processes are skipped at first, want %d", skipped, len(all)-maxScans)
		}
		if got := scanned[youngest]; got != (walk == 3) {
			t.Errorf("walk %d scans the youngest: %v", walk, got)
		}
		now = now.Add(defaultScanInterval)
	}
	// From then on all of them get their turns, again and again.
	seen := map[int]int{}
	for range 40 {
		scanned, _ := u.walk(all, false, now)
		for id := range scanned {
			seen[id.PID]++
		}
		now = now.Add(defaultScanInterval)
	}
	if len(seen) != len(all) {
		t.Errorf("%d of %d processes were scanned", len(seen), len(all))
	}
}

// Scans that do not end leave no room for those of later walks; what the kernel reports does not wait for them.
func TestTurnsBehindScans(t *testing.T) {
	u := newTurns()
	all := decoys(2 * maxScans)
	followed := running(1, "a", 1)
	u.fleet.update([]observation{followed}, begin)
	now := begin.Add(rescanInterval)
	if due, skipped := u.due(all, false, now); len(due) != maxScans+1 || skipped != maxScans-1 {
		t.Fatalf("%d scans at first, %d skipped", len(due), skipped)
	}
	now = now.Add(defaultScanInterval)
	if due, skipped := u.due(all, false, now); len(due) != 0 || skipped != maxScans-1 {
		t.Errorf("while none has ended %d more scans, %d skipped", len(due), skipped)
	}
	delete(u.scans, all[1].ID)
	if due, skipped := u.due(all, false, now.Add(time.Second)); len(due) != 1 || skipped != maxScans-1 {
		t.Errorf("after the end of one %d more scans, %d skipped", len(due), skipped)
	}
	if due, _ := u.due(all[len(all)-1:], true, now); len(due) != 1 {
		t.Error("what the kernel reports has to wait")
	}
}

// What is no server costs less and less, and is scanned immediately when the kernel reports it. A server that is
// followed does not have to wait for others.
func TestTurnsOfOne(t *testing.T) {
	u := newTurns()
	one := decoys(1)
	scans := 0
	now := begin
	for range 60 {
		scanned, _ := u.walk(one, false, now)
		scans += len(scanned)
		now = now.Add(defaultScanInterval)
	}
	if scans < 15 || scans > 30 {
		t.Errorf("%d scans in ten minutes", scans)
	}
	u.walk(one, true, now)
	if scanned, _ := u.walk(one, false, now); len(scanned) != 0 {
		t.Error("it is scanned twice at once")
	}
	if scanned, _ := u.walk(one, true, now); len(scanned) != 1 {
		t.Error("it is not scanned when the kernel reports it")
	}
	all := decoys(2 * maxScans)
	followed := running(len(all), "a", 1)
	u.fleet.update([]observation{followed}, now)
	now = now.Add(rescanInterval)
	if scanned, _ := u.walk(all, false, now); !scanned[followed.ID] || len(scanned) != maxScans+1 {
		t.Errorf("%d scans, of the one that is followed: %v", len(scanned), scanned[followed.ID])
	}
}
