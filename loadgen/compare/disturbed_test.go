package compare

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/soak"
)

// A fault that could not be done disturbs until its mending was tried, as in the report; one that was never begun does not.
func TestFailedFaultDisturbs(t *testing.T) {
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	event := func(minutes int, name, what string) soak.Event {
		return soak.Event{Time: began.Add(time.Duration(minutes) * time.Minute), Kind: soak.FaultEvent, Name: name, What: what}
	}
	events := []soak.Event{event(5, "missed", soak.Failed), event(10, "slow disk", soak.Begin), event(11, "slow disk", soak.Failed), event(20, "slow disk", soak.End)}
	for minutes, want := range map[int]bool{6: false, 9: false, 15: true, 20: true, 25: false} {
		if got := disturbed(events, began.Add(time.Duration(minutes)*time.Minute), 10*time.Second, 10*time.Second); got != want {
			t.Errorf("after %d minutes: disturbed %v, want %v", minutes, got, want)
		}
	}
}
