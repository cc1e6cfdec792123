package disk

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/plumbline/plumbline/exporters/agent/collector/collectortest"
	"github.com/plumbline/plumbline/exporters/agent/pod"
	"github.com/plumbline/plumbline/exporters/agent/volume"
	"github.com/plumbline/plumbline/tests/testkit"
)

// A loop device whose file is in a mount namespace that is no more is above the disk that the file is on: its path
// means nothing to anybody else.
func TestLoopOfAnotherNamespace(t *testing.T) {
	testkit.NeedRoot(t)
	outer, at := collectortest.LoopOf(t, 128<<20), t.TempDir()
	collectortest.Must(t, "mkfs.ext4", "-q", "/dev/"+outer)
	script := `mount "$0" "$1" && truncate -s 32M "$1/disk" && losetup --find --show "$1/disk"`
	inner := collectortest.Must(t, "unshare", "--mount", "--propagation", "private", "sh", "-c", script, "/dev/"+outer, at)
	collectortest.Undone(t, "losetup", "--detach", inner)
	tables, err := volume.ReadTables("/proc", pod.NewWalk("/proc"))
	if err != nil {
		t.Fatal(err)
	}
	devices := volume.NewDevices("/proc", "/sys")
	want := devices.Below(outer, tables)
	if got := devices.Below(filepath.Base(inner), tables); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("below %s are %q, below %s, which its file is on, %q", inner, got, outer, want)
	}
}
