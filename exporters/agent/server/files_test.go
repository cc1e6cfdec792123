package server

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The device of a file system with an anonymous number is known of btrfs only: others any user may mount, by a device's name.
func TestDeviceOf(t *testing.T) {
	p := newProcess(t.TempDir(), 10)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	mounts := `21 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw
22 21 0:31 /subvolume /data rw,relatime shared:7 - btrfs /dev/sdb rw,subvol=/subvolume
23 21 0:32 / /memory rw - tmpfs /dev/sda rw
24 21 0:33 / /fuse rw - fuse.btrfs /dev/sda rw
25 21 0:34 / /layers rw - overlay /dev/sda rw,lowerdir=/a
`
	if err := os.WriteFile(filepath.Join(p.dir, "mountinfo"), []byte(mounts), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		major, minor   uint32
		device, source string
	}{
		{8, 1, "8:1", ""},
		{0, 31, "0:31", "/dev/sdb"},
		{0, 32, "0:32", ""},
		{0, 33, "0:33", ""},
		{0, 34, "0:34", ""},
		{0, 35, "0:35", ""},
	} {
		if device, source := p.deviceOf(unix.Stat_t{Dev: unix.Mkdev(c.major, c.minor)}); device != c.device || source != c.source {
			t.Errorf("device %q by %q, want %q by %q", device, source, c.device, c.source)
		}
	}
}
