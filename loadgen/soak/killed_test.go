package soak

import (
	"slices"
	"testing"
	"time"
)

// A soak that is killed in a phase writes no end of it. Started again, the phase has ended with the last sample before;
// one in which the soak still is has no end, and a fault goes on until it is mended.
func TestKilledInAPhase(t *testing.T) {
	folder := t.TempDir()
	s, _, err := open(folder, longPlan(1), evening)
	if err != nil {
		t.Fatal(err)
	}
	at := func(minutes int) time.Time { return evening.Add(time.Duration(minutes) * time.Minute) }
	for _, minutes := range []int{1, 2, 3, 4, 5, 20, 21, 41} {
		if err := s.sample(sampleAt(at(minutes), "r3", 7, time.Millisecond)); err != nil {
			t.Fatal(err)
		}
	}
	for _, e := range []Event{
		{at(0), SoakEvent, "soak", Begin, ""},
		{at(1), PhaseEvent, "over", Begin, ""},
		{at(2), FaultEvent, "slow disk", Begin, ""},
		{at(3), PhaseEvent, "over", End, ""},
		{at(4), PhaseEvent, "burst", Begin, ""},
		{at(6), PhaseEvent, "at once", Begin, ""}, // after the last sample
		{at(20), SoakEvent, "soak", Begin, ""},
		{at(20), FaultEvent, "slow disk", End, ""},
		{at(21), PhaseEvent, "burst", Begin, ""},
		{at(40), SoakEvent, "soak", Begin, ""},
		{at(40), PhaseEvent, "burst", Begin, ""},
	} {
		if err := s.event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	type end struct {
		minutes float64
		detail  string
	}
	got := map[string][]end{}
	for _, e := range read(t, folder).Events {
		if e.What == End {
			got[e.Name] = append(got[e.Name], end{e.Time.Sub(evening).Minutes(), e.Detail})
		}
	}
	for name, want := range map[string][]end{"over": {{3, ""}}, "burst": {{5, Killed}, {21, Killed}}, "at once": {{6, Killed}}, "slow disk": {{20, ""}}} {
		if !slices.Equal(got[name], want) {
			t.Errorf("%s ended %v, want %v", name, got[name], want)
		}
	}
}
