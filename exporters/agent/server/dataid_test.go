package server

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/tests/rig"
)

// A data directory keeps its DataID when its file system comes back as another device, also on an XFS, whose own number
// is that of its device. Another file system's directory of the same path and number has another one.
func TestDataIDOfAnotherDevice(t *testing.T) {
	types := map[string]func(rig.T, string, string) error{
		"ext4": func(t rig.T, device, at string) error { return rig.MountExt4(t, device, at) },
	}
	if kernels, err := os.ReadFile("/proc/filesystems"); err == nil && strings.Contains(string(kernels), "xfs") {
		types["xfs"] = rig.MountXFS
	} else {
		t.Log("the kernel has no XFS loaded")
	}
	for name, mount := range types {
		t.Run(name, func(t *testing.T) {
			id := func(at string) (string, uint64) {
				t.Helper()
				procfs := t.TempDir()
				if err := errors.Join(os.Mkdir(filepath.Join(procfs, "7"), 0o755), os.Symlink(at, filepath.Join(procfs, "7", "cwd"))); err != nil {
					t.Fatal(err)
				}
				dir, err := untrusted.WorkingDirectory(procfs, 7)
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				here, err := dir.File(".", untrusted.NoLinks)
				if err != nil {
					t.Fatal(err)
				}
				return dataID(dir, here, "/var/lib/mysql"), here.Dev
			}
			attach := func(file string) string {
				t.Helper()
				device, err := rig.AttachLoop(t, file)
				if err != nil {
					t.Fatal(err)
				}
				return device
			}
			disk := func() (file, at string) {
				t.Helper()
				file, at = filepath.Join(t.TempDir(), "disk"), t.TempDir()
				if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Truncate(file, 320<<20)); err != nil {
					t.Fatal(err)
				}
				if err := mount(t, attach(file), at); err != nil {
					t.Fatal(err)
				}
				return file, at
			}
			file, at := disk()
			first, device := id(at)
			_, elsewhere := disk()
			if other, _ := id(elsewhere); other == first || first == "" {
				t.Errorf("two directories have the DataIDs %q and %q", first, other)
			}
			if err := unix.Unmount(at, 0); err != nil {
				t.Fatal(err)
			}
			// The first loop device is still there, so that the second one has another number.
			if err := unix.Mount(attach(file), at, name, 0, ""); err != nil {
				t.Fatal(err)
			}
			if again, now := id(at); again != first || now == device {
				t.Errorf("DataID %q of device %d, and %q of device %d", first, device, again, now)
			}
		})
	}
}
