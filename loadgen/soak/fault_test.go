package soak

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/plumbline/plumbline/tests/testkit"
)

// begunFault is the event of a fault that an earlier start has done.
func begunFault(name string) Event {
	return Event{time.Now().Add(-time.Minute), FaultEvent, name, Begin, ""}
}

// awaitMended waits for the end of a fault.
func awaitMended(t *testing.T, folder, fault string) {
	t.Helper()
	testkit.Eventually(t, time.Minute, func() error {
		if n := events(read(t, folder), FaultEvent, fault, End); n != 1 {
			return fmt.Errorf("%d ends of fault %s", n, fault)
		}
		return nil
	})
}

// Mending that fails is tried again while the soak runs.
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
		t.Errorf("a fault that was mended is told as not mended %d times", n)
	}
}

// A fault that cannot be mended has no end, so that the next start mends it.
func TestUnmendedFaultStays(t *testing.T) {
	t.Parallel()
	flag := filepath.Join(t.TempDir(), "flag")
	plan := unreachedPlan(t, Fault{Name: "slow disk", Do: []string{"false"}, Undo: []string{"sh", "-c", "echo no such disk; test -e " + flag}})
	folder := begun(t, plan, time.Now().Add(-time.Minute), begunFault("slow disk"))
	start(t, folder, plan)() // told to end at once: one try
	d := read(t, folder)
	if ends, unmended := events(d, FaultEvent, "slow disk", End), events(d, FaultEvent, "slow disk", Unmended); ends != 0 || unmended != 1 {
		t.Errorf("a fault that was not mended has %d ends and is told as not mended %d times", ends, unmended)
	}
	for _, e := range d.Events {
		if e.What == Unmended && !strings.Contains(e.Detail, "no such disk") {
			t.Errorf("why it was not mended is told as %q", e.Detail)
		}
	}
	if err := os.WriteFile(flag, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	stop := start(t, folder, plan)
	awaitMended(t, folder, "slow disk")
	stop()
}
