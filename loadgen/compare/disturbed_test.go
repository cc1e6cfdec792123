package compare

import (
	"testing"
	"time"

	"github.com/plumbline/plumbline/loadgen/soak"
)

// A fault that could not be done disturbs until its mending was tried, as in the report; one that was never begun does
// not.
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

// The intervals in which the machine was suspended, or its clock was set, are no database's; an end that was never
// written disturbs none.
func TestSuspendDisturbs(t *testing.T) {
	began := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	event := func(minutes int, name, what string) soak.Event {
		return soak.Event{Time: began.Add(time.Duration(minutes) * time.Minute), Kind: soak.MachineEvent, Name: name, What: what}
	}
	events := []soak.Event{event(10, soak.Suspended, soak.Begin), event(20, soak.Suspended, soak.End), event(30, soak.ClockSet, soak.Begin), event(40, soak.ClockSet, soak.End),
		event(50, soak.Suspended, soak.Begin)}
	for minutes, want := range map[int]bool{9: false, 20: true, 25: false, 35: true, 60: false} {
		if got := disturbed(events, began.Add(time.Duration(minutes)*time.Minute), 10*time.Second, 10*time.Second); got != want {
			t.Errorf("after %d minutes: disturbed %v, want %v", minutes, got, want)
		}
	}
}
