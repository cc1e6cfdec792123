// Package disk finds the disk under a directory. No caller waits for a file system: what lies on
// one can hang with it, so every lookup is made in the background.
package disk

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/exporterkit/label"
)

// Finder finds disks by the given roots and remembers them.
type Finder struct {
	ProcFS, SysFS, RootFS string

	lookups lookups
}

// Find returns the kernel's name of the whole disk that holds path, as in /sys/class/block: a partition counts as its
// disk, because that is where requests queue. A path that is a block device is its own. It never waits: it returns
// ErrPending until the answer is there.
func (f *Finder) Find(path string) (string, error) {
	return f.lookups.get("disk of "+path, func() (string, error) { return f.diskOf(path) })
}

// Wait is Find for the background: it gives a first lookup some time to return.
func (f *Finder) Wait(path string) (string, error) {
	return f.lookups.wait("disk of "+path, func() (string, error) { return f.diskOf(path) })
}

// Device returns the kernel's name of a device from the path of a link to it, as udev makes them.
// It never waits, as Find.
func (f *Finder) Device(path string) (string, error) {
	return f.lookups.get("device "+path, func() (string, error) { return f.deviceAt(path) })
}

// open opens a file of any kind without touching it. Links are followed as if RootFS were the root.
func (f *Finder) open(path string) (*os.File, error) {
	root, err := os.OpenFile(f.RootFS, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	fd, err := unix.Openat2(int(root.Fd()), path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label.Value(filepath.Join(f.RootFS, path)), err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

func (f *Finder) stat(path string) (unix.Stat_t, error) {
	var stat unix.Stat_t
	file, err := f.open(path)
	if err != nil {
		return stat, err
	}
	defer file.Close()
	return stat, unix.Fstat(int(file.Fd()), &stat)
}

func (f *Finder) deviceAt(path string) (string, error) {
	file, err := f.open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "", err
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("%s is no block device", label.Value(path))
	}
	if device, err := f.deviceByNumber(unix.Major(stat.Rdev), unix.Minor(stat.Rdev)); err == nil {
		return Name(filepath.Base(device)), nil
	}
	real, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(int(file.Fd())))
	return filepath.Base(real), err
}

func (f *Finder) diskOf(directory string) (string, error) {
	file, err := f.open(directory)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var stat unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &stat); err != nil {
		return "", err
	}
	if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		// A V2 disk is a block device of its own.
		return f.diskByNumber(unix.Major(stat.Rdev), unix.Minor(stat.Rdev))
	}
	major, minor := unix.Major(stat.Dev), unix.Minor(stat.Dev)
	if major == 0 {
		// The file system has a number of its own; of some the mount names the device.
		directory = label.Value(directory)
		kind, source, err := f.mountSource(MountOf(int(file.Fd())))
		if err != nil {
			return "", fmt.Errorf("%s: %w", directory, err)
		}
		if !SourceNamesDevice(kind) {
			return "", fmt.Errorf("%s is on %q, a file system of the kind %s, whose source names no device", directory, label.Value(source), label.Value(kind))
		}
		if filepath.Clean(source) != source || !strings.HasPrefix(source, "/dev/") || strings.HasPrefix(source, "/dev/shm/") {
			return "", fmt.Errorf("%s is on %q, which is no block device", directory, label.Value(source))
		}
		if stat, err = f.stat(source); err != nil {
			return "", fmt.Errorf("%s is on %s: %w", directory, label.Value(source), err)
		}
		if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
			return "", fmt.Errorf("%s is on %s, which is no block device", directory, label.Value(source))
		}
		major, minor = unix.Major(stat.Rdev), unix.Minor(stat.Rdev)
	}
	return f.diskByNumber(major, minor)
}

// deviceByNumber returns the folder of a device in sysfs.
func (f *Finder) deviceByNumber(major, minor uint32) (string, error) {
	device, err := filepath.EvalSymlinks(filepath.Join(f.SysFS, "dev", "block", fmt.Sprintf("%d:%d", major, minor)))
	if err != nil {
		return "", fmt.Errorf("device %d:%d: %w", major, minor, err)
	}
	return device, nil
}

func (f *Finder) diskByNumber(major, minor uint32) (string, error) {
	device, err := f.deviceByNumber(major, minor)
	if err != nil {
		return "", err
	}
	return Whole(device)
}

// maxMountinfo bounds what is read of the list of mounts; others write the names in it.
const maxMountinfo = 16 << 20

// mountSource returns the kind and the source of the mount with the kernel's number, from mountinfo
// (proc_pid_mountinfo(5)): the first field is the number, the kind comes first after " - " and the source second. The
// process itself has opened the file, so that the mount is in its own table, or was: what is mounted outside of its
// root is in no line.
func (f *Finder) mountSource(number uint64) (kind, source string, err error) {
	mounts, err := os.Open(filepath.Join(f.ProcFS, "self", "mountinfo"))
	if err != nil {
		return "", "", err
	}
	defer mounts.Close()
	want := strconv.FormatUint(number, 10)
	lines := bufio.NewScanner(io.LimitReader(mounts, maxMountinfo))
	lines.Buffer(nil, maxMountLine)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		fields, rest := strings.Fields(before), strings.Fields(after)
		if ok && len(fields) > 2 && len(rest) > 1 && fields[0] == want {
			return rest[0], rest[1], nil
		}
	}
	if err := lines.Err(); err != nil {
		return "", "", err
	}
	return "", "", fmt.Errorf("no mount has the number %s", want)
}

// maxMountLine bounds a line of it: an overlay names all its folders.
const maxMountLine = 1 << 20
