package disk

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/tests/testkit"
)

// A directory is traced through a partition, and through a file system with a device number
// of its own, to the disk.
func TestDiskOfDirectory(t *testing.T) {
	root := t.TempDir()
	sys := filepath.Join(root, "sys")
	for _, dir := range []string{"devices/pci/sda/sda1", "devices/pci/nvme0n1", "devices/virtual/pxd!pxd17", "dev/block"} {
		if err := os.MkdirAll(filepath.Join(sys, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(sys, "devices/pci/sda/sda1/partition"), "1\n")
	for number, device := range map[string]string{"8:1": "pci/sda/sda1", "259:0": "pci/nvme0n1", "252:1": "virtual/pxd!pxd17"} {
		if err := os.Symlink("../../devices/"+device, filepath.Join(sys, "dev/block", number)); err != nil {
			t.Fatal(err)
		}
	}
	f := &Finder{SysFS: sys, ProcFS: filepath.Join(root, "proc"), RootFS: "/"}
	for _, test := range []struct {
		major, minor uint32
		disk         string
	}{{8, 1, "sda"}, {259, 0, "nvme0n1"}, {252, 1, "pxd/pxd17"}, {9, 9, ""}} {
		disk, err := f.diskByNumber(test.major, test.minor)
		if disk != test.disk || (err == nil) != (test.disk != "") {
			t.Errorf("%d:%d is %q (%v), want %q", test.major, test.minor, disk, err, test.disk)
		}
	}
	if err := os.MkdirAll(filepath.Join(f.ProcFS, "self"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(f.ProcFS, "self", "mountinfo"),
		"22 1 8:1 / / rw - ext4 /dev/sda1 rw\n33 22 0:45 /sub /data rw,relatime shared:1 - btrfs /dev/nvme0n1 rw,subvol=/sub\n")
	if kind, source, err := f.mountSource(33); kind != "btrfs" || source != "/dev/nvme0n1" || err != nil {
		t.Errorf("mount 33 is %q and comes from %q (%v)", kind, source, err)
	}
	if _, _, err := f.mountSource(46); err == nil {
		t.Error("a mount that is not there has a source")
	}
}

// A file system that any user may mount lies on no disk, whatever source it reports.
func TestSourceOfAnybody(t *testing.T) {
	testkit.NeedRoot(t)
	root := t.TempDir()
	sys, data := filepath.Join(root, "sys"), filepath.Join(root, "data")
	if err := errors.Join(os.MkdirAll(filepath.Join(sys, "devices/pci/sdz"), 0o700), os.MkdirAll(filepath.Join(sys, "dev/block"), 0o700),
		os.Symlink("../../devices/pci/sdz", filepath.Join(sys, "dev/block/65:144")), os.Mkdir(data, 0o700), os.Mkdir(filepath.Join(root, "dev"), 0o700),
		unix.Mknod(filepath.Join(root, "dev/sdz"), unix.S_IFBLK|0o600, int(unix.Mkdev(65, 144)))); err != nil {
		t.Fatal(err)
	}
	f := &Finder{SysFS: sys, ProcFS: "/proc", RootFS: root}
	if disk, err := f.diskOf("/dev/sdz"); disk != "sdz" || err != nil {
		t.Fatalf("the device itself is %q (%v)", disk, err)
	}
	if device, err := f.deviceAt("/dev/sdz"); device != "sdz" || err != nil {
		t.Errorf("the device is called %q (%v)", device, err)
	}
	write(t, filepath.Join(root, "dev/pvc-1"), "")
	for _, path := range []string{"/dev/pvc-1", "/data"} {
		if device, err := f.deviceAt(path); device != "" || err == nil {
			t.Errorf("%s, which is no block device, is called %q (%v)", path, device, err)
		}
	}
	if err := unix.Mount("/dev/sdz", data, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(data, unix.MNT_DETACH) //nolint:errcheck // the folder goes with the test
	if disk, err := f.diskOf("/data"); disk != "" || err == nil || !strings.Contains(err.Error(), "tmpfs") {
		t.Errorf("a tmpfs whose source is a disk is on %q (%v)", disk, err)
	}
	for kind, want := range map[string]bool{"btrfs": true, "tmpfs": false, "fuse.sshfs": false, "fuse": false, "overlay": false, "nfs4": false, "zfs": false, "": false} {
		if SourceNamesDevice(kind) != want {
			t.Errorf("the source of a file system of the kind %q is believed: %v", kind, !want)
		}
	}
}

// The real thing: /var/tmp lies on a disk the kernel lists.
func TestDiskOfRealDirectory(t *testing.T) {
	f := &Finder{ProcFS: "/proc", SysFS: "/sys", RootFS: "/"}
	disk, err := f.Wait("/var/tmp")
	if err != nil {
		testkit.Skip(t, "/var/tmp is on no block device: "+err.Error())
	}
	if _, err := os.Stat("/sys/block/" + disk); err != nil {
		t.Errorf("the disk of /var/tmp is %q: %v", disk, err)
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
