package disk

import (
	"os"
	"path/filepath"
	"strings"
)

// Name returns what the block layer calls a device that has this name in sysfs, as /proc/diskstats and all metrics of
// devices do: sysfs has a ! where the name has a / (cciss/c0d0, pxd/pxd17, drbd/by-res/…).
func Name(entry string) string { return strings.ReplaceAll(entry, "!", "/") }

// Entry returns the name that a device has in sysfs.
func Entry(name string) string { return strings.ReplaceAll(name, "/", "!") }

// Whole returns the disk that a partition is on, or the device itself, by a path to the device's folder in sysfs.
func Whole(device string) (string, error) {
	folder, err := filepath.EvalSymlinks(device)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(folder, "partition")); err == nil {
		folder = filepath.Dir(folder)
	}
	return Name(filepath.Base(folder)), nil
}

// anonymous are the kinds of file systems that lie on block devices and have a number of their own all the same, so
// that only their source names a device. What needs a device has the device's number otherwise.
var anonymous = map[string]bool{"btrfs": true}

// SourceNamesDevice reports whether the source of a mount with an anonymous number (0:N) names the device that a file system
// of this kind lies on. For other kinds, such as FUSE, tmpfs and overlay, any user who mounts one chooses the source.
func SourceNamesDevice(kind string) bool { return anonymous[kind] }
