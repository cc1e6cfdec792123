package volume

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// Devices turns device numbers into the kernel's names of whole disks: the names that
// node_exporter and ebpf_exporter use.
type Devices struct {
	procfs, sysfs string
	loops         *loops
}

// NewDevices returns Devices that read sysfs, and procfs for the host's /dev.
func NewDevices(procfs, sysfs string) Devices { return Devices{procfs, sysfs, newLoops()} }

// ErrNoDevice is the error of a file system that lies on no block device of this machine, such as one of the network or
// in memory, or on none of them alone, as ZFS.
var ErrNoDevice = errors.New("on no block device")

// Of returns the disk a file system lies on, or that a raw block volume is. A partition's disk is
// the whole one, because that is what the block layer accounts to.
func (d Devices) Of(m Mount) (string, error) {
	number, err := m.Device, error(nil)
	switch {
	case m.raw:
		if number, err = d.numberOf("/dev" + m.Root); err != nil {
			number, err = d.numberAt(m.Point, err) // its name is gone, or is one of another /dev
		}
	case strings.HasPrefix(number, "0:") && m.Type != "" && !disk.SourceNamesDevice(m.Type):
		err = fmt.Errorf("%w: %q file systems have none", ErrNoDevice, untrusted.Text(m.Type, untrusted.MaxLabel))
	case strings.HasPrefix(number, "0:"):
		// An anonymous number: only the source can name a device.
		number, err = d.numberOf(m.Source)
	}
	if err != nil {
		return "", fmt.Errorf("mount %s: %w", untrusted.Path(m.Point), err)
	}
	return d.disk(number, m)
}

// disk returns the whole disk of a device number, which is that of a mount.
func (d Devices) disk(number string, m Mount) (string, error) {
	whole, err := disk.Whole(filepath.Join(d.sysfs, "dev", "block", number))
	if err != nil {
		return "", fmt.Errorf("device %s of mount %s: %w", number, untrusted.Path(m.Point), err)
	}
	return whole, nil
}

// numberOf returns the number of the block device that a mount names as its source. The name is looked up in /dev
// itself only: not on file systems mounted there, and not by links that lead out of it.
func (d Devices) numberOf(source string) (string, error) {
	name, ok := strings.CutPrefix(source, "/dev/")
	if !ok {
		return "", fmt.Errorf("%w: its source is %q", ErrNoDevice, untrusted.Path(source))
	}
	stat, err := d.stat(name)
	if err != nil {
		return "", fmt.Errorf("its source %q: %w", untrusted.Path(source), err)
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", fmt.Errorf("its source %q is no block device", untrusted.Path(source))
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)), nil
}

// numberAt returns the number of the block device whose node is mounted at a point of the host's; without one there,
// why it was looked for.
func (d Devices) numberAt(point string, why error) (string, error) {
	root, err := untrusted.Root(d.procfs, 1)
	if err != nil {
		return "", why
	}
	defer root.Close()
	stat, err := root.Stat(point, untrusted.InRoot)
	if err != nil || stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return "", why
	}
	return fmt.Sprintf("%d:%d", unix.Major(stat.Rdev), unix.Minor(stat.Rdev)), nil
}

// stat reads the host's /dev: a container's own has no disks. Without leave to do so it is the agent's own.
func (d Devices) stat(name string) (unix.Stat_t, error) {
	if stat, err := untrusted.HostDevice(d.procfs, name); err == nil {
		return stat, nil
	}
	return untrusted.Device(name)
}

// maxDepth bounds how deep a stack of devices is followed; real ones have three or four.
const maxDepth = 8

// Below returns the disks at the bottom of a device's stack: below device-mapper and md
// devices their members, below a loop device the disk of its file. A device on nothing else
// is its own bottom. What is on no local disk (a file on a network file system) has none.
func (d Devices) Below(device string, host *Tables) []string {
	seen := map[string]bool{}
	d.below(device, host, seen, maxDepth)
	return slices.Sorted(maps.Keys(seen))
}

// BelowMount is Below for what a mount's disk is: a btrfs may have several, and an XFS others for its log.
func (d Devices) BelowMount(m Mount, device string, host *Tables) []string {
	seen := map[string]bool{}
	d.below(device, host, seen, maxDepth)
	if m.Type == "btrfs" && !m.raw {
		for _, member := range d.members(m) {
			d.below(member, host, seen, maxDepth)
		}
	}
	if m.extra != "" && !m.raw {
		for source := range strings.SplitSeq(m.extra, ",") {
			if extra, err := d.Of(Mount{Point: m.Point, Device: "0:0", Source: source}); err == nil {
				d.below(extra, host, seen, maxDepth)
			}
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// members are the disks of a btrfs; its mount names only one of them.
func (d Devices) members(m Mount) []string {
	number, err := d.numberOf(m.Source)
	if err != nil {
		return nil
	}
	path, err := filepath.EvalSymlinks(filepath.Join(d.sysfs, "dev", "block", number))
	if err != nil {
		return nil
	}
	own, _ := filepath.Glob(filepath.Join(d.sysfs, "fs", "btrfs", "*", "devices", filepath.Base(path)))
	var all []string
	for _, found := range own {
		devices, _ := os.ReadDir(filepath.Dir(found))
		for _, one := range devices {
			all = append(all, d.whole(one.Name()))
		}
	}
	return all
}

func (d Devices) below(device string, host *Tables, bottom map[string]bool, depth int) {
	if depth == 0 {
		return
	}
	folder := filepath.Join(d.sysfs, "class", "block", disk.Entry(device))
	members, _ := os.ReadDir(filepath.Join(folder, "slaves"))
	for _, m := range members {
		d.below(d.whole(m.Name()), host, bottom, depth-1)
	}
	if len(members) > 0 {
		return
	}
	text, err := os.ReadFile(filepath.Join(folder, "loop", "backing_file"))
	if err != nil {
		bottom[device] = true
		return
	}
	if below, err := d.ofLoop(device, strings.TrimSuffix(string(text), "\n"), host); err == nil && below != device {
		d.below(below, host, bottom, depth-1)
	}
}

// ofLoop returns the disk that a loop device's file is on. The kernel's own status of the device has it, even if the
// file was renamed or is in another mount namespace. path is its name in the mount namespace of the process that
// attached it.
func (d Devices) ofLoop(device, path string, host *Tables) (string, error) {
	file, err := d.loops.lookUp(d, device, path)
	if err == nil && unix.Major(file.Device) != 0 {
		return d.disk(fmt.Sprintf("%d:%d", unix.Major(file.Device), unix.Minor(file.Device)), Mount{Point: path})
	}
	mount, ok := host.Holding(strings.TrimSuffix(path, " (deleted)"))
	if !ok {
		return "", fmt.Errorf("%w: no mount of the host holds %s", ErrNoDevice, untrusted.Path(path))
	}
	if err == nil {
		// The file system has no device's number, as btrfs: the mount has the device, if it is the file's.
		if mount, err = d.loops.mountOf(d, file, path); err != nil {
			return "", err
		}
	}
	return d.Of(mount)
}

// whole returns the disk that a partition is on, or the device itself, by the entry in sysfs.
func (d Devices) whole(entry string) string {
	whole, err := disk.Whole(filepath.Join(d.sysfs, "class", "block", entry))
	if err != nil {
		return disk.Name(entry)
	}
	return whole
}
