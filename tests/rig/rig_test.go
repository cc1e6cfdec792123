package rig

import (
	"slices"
	"testing"
)

// A scope ends at its first fatal error, cleans up in reverse even if that fails, and returns the first error.
func TestScope(t *testing.T) {
	var did []string
	err := Run(t.Logf, func(s *Scope) {
		s.Cleanup(func() { did = append(did, "first") })
		s.Cleanup(func() { s.Fatalf("cleaning failed") })
		s.Cleanup(func() { did = append(did, "last") })
		s.Fatalf("it failed: %d", 7)
		did = append(did, "after")
	})
	if err == nil || err.Error() != "it failed: 7" {
		t.Errorf("error %v", err)
	}
	if want := []string{"last", "first"}; !slices.Equal(did, want) {
		t.Errorf("did %v, want %v", did, want)
	}
	if err := Run(t.Logf, func(s *Scope) { s.Check(nil) }); err != nil {
		t.Error(err)
	}
}

func TestScopeLetsPanicsThrough(t *testing.T) {
	cleaned := false
	defer func() {
		if r := recover(); r != "boom" || !cleaned {
			t.Errorf("recovered %v, cleaned up: %v", r, cleaned)
		}
	}()
	_ = Run(t.Logf, func(s *Scope) {
		s.Cleanup(func() { cleaned = true })
		panic("boom")
	})
}
