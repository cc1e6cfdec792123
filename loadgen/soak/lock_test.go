package soak

import (
	"strings"
	"testing"
	"time"
)

// A folder on which a soak runs takes no second one, of any plan; it is read meanwhile. What ends the soak frees it.
func TestOneSoakAFolder(t *testing.T) {
	folder := t.TempDir()
	s, _, err := open(folder, longPlan(1), evening)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.sample(sampleAt(evening.Add(time.Second), "r3", 7, time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for _, days := range []int{1, 2} {
		if _, _, err := open(folder, longPlan(days), evening); err == nil || !strings.Contains(err.Error(), folder+": another soak runs on this folder") {
			t.Errorf("a second soak on a folder: %v", err)
		}
	}
	if d := read(t, folder); len(d.Samples) != 1 {
		t.Errorf("%d samples are read while the soak runs, want 1", len(d.Samples))
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(folder, longPlan(2), evening); err == nil || !strings.Contains(err.Error(), "another plan") {
		t.Errorf("a soak of another plan: %v", err)
	}
	if s, _, err = open(folder, longPlan(1), evening); err != nil {
		t.Fatalf("after the first's end, and one that was refused: %v", err)
	}
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}
