package collector

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// Threads add up from the first look on; one that comes later counts in full, one that ends keeps what it did.
func TestProcessCPU(t *testing.T) {
	var p processCPU
	p.add(map[string]threadCPU{"1": {100, 10}, "2": {50, 5}})
	if p.ran != 0 || p.waited != 0 {
		t.Errorf("at the first look: %v", p.threadCPU)
	}
	p.add(map[string]threadCPU{"1": {130, 11}, "3": {7, 1}})
	p.add(map[string]threadCPU{"1": {130, 11}, "3": {2, 0}}) // another thread 3
	if want := (threadCPU{30 + 7 + 2, 1 + 1}); p.threadCPU != want {
		t.Errorf("%v, want %v", p.threadCPU, want)
	}
}

// The kernel's accounts of this process have at least the CPU time that it uses meanwhile; bad ones are errors.
func TestReadThreadsCPU(t *testing.T) {
	var p processCPU
	look := func() {
		t.Helper()
		now, err := readThreadsCPU("/proc/self/task")
		if err != nil {
			t.Fatal(err)
		}
		p.add(now)
	}
	look()
	used := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	begin := used()
	testkit.Eventually(t, time.Minute, func() error {
		for used() < begin+100*time.Millisecond {
		}
		return nil
	})
	want := used() - begin
	look()
	// A tick may be under way, and a thread of the runtime may have ended.
	if got := time.Duration(p.ran); got < want/2 {
		t.Errorf("the accounts have %v, the process used %v", got, want)
	}
	for text, problem := range map[string]string{"0 0 0\n": "CONFIG_SCHED_INFO", "1 many 3\n": "schedstat"} {
		dir := t.TempDir()
		if err := os.Mkdir(filepath.Join(dir, "1"), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "1", "schedstat"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := readThreadsCPU(dir); err == nil || !strings.Contains(err.Error(), problem) {
			t.Errorf("%q: %v, want %q", text, err, problem)
		}
	}
}
