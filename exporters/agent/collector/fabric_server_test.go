package collector

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The names of programs: SPDK's has the number of a CPU. One that the kernel cannot show is refused.
func TestServerNames(t *testing.T) {
	for name, want := range map[string]bool{"spdk_tgt": true, "reactor_0": true, "reactor_12": true, "reactor": false, "spdk_tgt2": false, "": false} {
		if got := nvmeWire.server.is(name); got != want {
			t.Errorf("%q: %v", name, got)
		}
	}
	for _, names := range [][]string{{""}, {strings.Repeat("x", processNameMax+1)}} {
		if _, err := NewISCSI(Options{ISCSI: FabricOptions{Servers: names}}); err == nil || !strings.Contains(err.Error(), "--iscsi.server") {
			t.Errorf("%q: %v", names, err)
		}
		if _, err := NewNVMe(Options{NVMe: FabricOptions{Servers: names}}); err == nil || !strings.Contains(err.Error(), "--nvme.server") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// Between two looks at all processes those that are known are left alone, new ones are found, and those that are gone are forgotten.
func TestServerScan(t *testing.T) {
	b := newServerBench(t)
	c := b.collector.(*fabricCollector)
	c.options.ProcFS = b.procfs
	process := func(pid, start int) {
		t.Helper()
		dir := filepath.Join(b.procfs, fmt.Sprint(pid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, text := range map[string]string{
			"stat":   fmt.Sprintf("%d (tgtd) S%s %d 0", pid, strings.Repeat(" 0", 18), start),
			"status": "Name:\ttgtd\nUid:\t0\t0\t0\t0\n",
		} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	found := func(want map[int]uint64) {
		t.Helper()
		c.servers.scan()
		if fmt.Sprint(c.servers.found) != fmt.Sprint(want) {
			t.Errorf("found %v, want %v", c.servers.found, want)
		}
	}
	c.servers.known = map[int]bool{}
	process(1001, 7)
	found(map[int]uint64{1001: 7})
	process(1002, 8)
	found(map[int]uint64{1001: 7, 1002: 8})
	if err := os.RemoveAll(filepath.Join(b.procfs, "1001")); err != nil {
		t.Fatal(err)
	}
	found(map[int]uint64{1002: 8})
	process(1001, 9)
	found(map[int]uint64{1001: 9, 1002: 8})
	// Another process of that number, which only a look at all finds.
	process(1002, 10)
	found(map[int]uint64{1001: 9, 1002: 8})
	c.servers.known = map[int]bool{}
	found(map[int]uint64{1001: 9, 1002: 10})
}
