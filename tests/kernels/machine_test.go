package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/kernels/job"
)

// A guest whose clock runs 40 times too fast, or too slowly, is booted again: nothing that waits there means anything.
func TestClockOff(t *testing.T) {
	began := time.Now().Add(-time.Hour)
	for _, c := range []struct {
		guest   string
		machine time.Duration
		off     bool
	}{
		{"70.10", 60 * time.Second, false},
		{"61.00", 60 * time.Second, false},
		{"2410.00", 60 * time.Second, true},
		{"11.50", 60 * time.Second, true},
		{"14.00", time.Second, false},
	} {
		share := t.TempDir()
		for name, stamp := range map[string]struct {
			up string
			at time.Time
		}{job.Booted: {"10.00", began}, job.Ended: {c.guest, began.Add(c.machine)}} {
			file := filepath.Join(share, name)
			if err := errors.Join(os.WriteFile(file, []byte(stamp.up+"\n"), 0o644), os.Chtimes(file, stamp.at, stamp.at)); err != nil {
				t.Fatal(err)
			}
		}
		if err := clockOff(share); errors.Is(err, errCrashed) != c.off {
			t.Errorf("up for %s s after 10 s, %s later: %v", c.guest, c.machine, err)
		}
	}
	if err := clockOff(t.TempDir()); err == nil {
		t.Error("no error without the guest's files")
	}
}
