// Package disk finds the disk under a directory.
package disk

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Finder finds disks by the given roots and remembers them. One that cannot be found (yet)
// is looked for again at the next call, which costs one stat(2).
type Finder struct {
	ProcFS, SysFS, RootFS string

	mu    sync.Mutex
	found map[string]string // by path
}

// Find returns the kernel's name of the whole disk that holds path, as in /sys/class/block:
// a partition counts as its disk, because that is where requests queue. A path that is a
// block device stands for itself.
func (f *Finder) Find(path string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if known, ok := f.found[path]; ok {
		return known, nil
	}
	disk, err := f.diskOf(path)
	if err != nil {
		return "", err
	}
	if f.found == nil {
		f.found = map[string]string{}
	}
	f.found[path] = disk
	return disk, nil
}

func (f *Finder) diskOf(directory string) (string, error) {
	path := filepath.Join(f.RootFS, directory)
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		// A V2 disk is a block device of its own.
		return f.diskByNumber(unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}
	major, minor := unix.Major(stat.Dev), unix.Minor(stat.Dev)
	if major == 0 {
		// btrfs, overlay and such have a number of their own; the mount names the device.
		source, err := f.mountSource(major, minor)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		if err := unix.Stat(filepath.Join(f.RootFS, source), &stat); err != nil {
			return "", fmt.Errorf("%s is on %s: %w", path, source, err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
			return "", fmt.Errorf("%s is on %s, which is no block device", path, source)
		}
		major, minor = unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
	}
	return f.diskByNumber(major, minor)
}

func (f *Finder) diskByNumber(major, minor uint32) (string, error) {
	link := filepath.Join(f.SysFS, "dev", "block", fmt.Sprintf("%d:%d", major, minor))
	device, err := filepath.EvalSymlinks(link)
	if err != nil {
		return "", fmt.Errorf("device %d:%d: %w", major, minor, err)
	}
	if _, err := os.Stat(filepath.Join(device, "partition")); err == nil {
		device = filepath.Dir(device)
	}
	return filepath.Base(device), nil
}

// mountSource returns the device of the mount with the given number, from mountinfo
// (proc_pid_mountinfo(5)): field 3 is the number, the source comes second after " - ".
func (f *Finder) mountSource(major, minor uint32) (string, error) {
	mounts, err := os.Open(filepath.Join(f.ProcFS, "self", "mountinfo"))
	if err != nil {
		return "", err
	}
	defer mounts.Close()
	want := fmt.Sprintf("%d:%d", major, minor)
	lines := bufio.NewScanner(mounts)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) > 2 && len(rest) > 1 && fields[2] == want {
			return rest[1], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", err
	}
	return "", fmt.Errorf("no mount has the device number %s", want)
}
