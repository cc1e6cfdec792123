package remote

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/plumbline/plumbline/exporters/agent/untrusted"
	"github.com/plumbline/plumbline/exporters/exporterkit/disk"
)

// ServingNVMe reports whether this machine's kernel can be an NVMe target: its module has at least one transport.
func ServingNVMe(sysfs string) bool {
	holders, err := os.ReadDir(filepath.Join(sysfs, "module", "nvmet", "holders"))
	return err == nil && len(holders) > 0
}

// Backing is what a target's namespace or LUN is made of.
type Backing struct {
	// Path is that as it was configured, and Device the block device below it if that is one; both are empty if
	// configfs is not to be seen.
	Path, Device string
	// InFlight is how many reads and writes the kernel counts at the device, if CountsInFlight is set.
	InFlight       uint64
	CountsInFlight bool
}

func backing(procfs, sysfs, path string) Backing {
	entry := blockDevice(procfs, sysfs, path)
	b := Backing{Path: path, Device: disk.Name(entry)}
	if entry != "" {
		b.InFlight, b.CountsInFlight = inFlight(sysfs, "class", "block", entry)
	}
	return b
}

// element reports whether a name is one of a folder's, and no way out of it.
func element(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/\x00")
}

// NVMeBacking returns what a namespace of a subsystem is made of.
func NVMeBacking(procfs, sysfs, nqn string, namespace uint32) Backing {
	if !element(nqn) {
		return Backing{}
	}
	return backing(procfs, sysfs, attribute(sysfs, "kernel", "config", "nvmet", "subsystems", nqn, "namespaces", strconv.Itoa(int(namespace)), "device_path"))
}

// blockDevice is the name in sysfs of the block device with this path: by the number that the node in the host's /dev
// has, which no file system but that is read for. Where that is not permitted, a link of the device mapper or of LVM is
// found by its name, others are not.
func blockDevice(procfs, sysfs, path string) string {
	name, ok := strings.CutPrefix(path, "/dev/")
	if !ok {
		return ""
	}
	if node, err := untrusted.HostDevice(procfs, name); err == nil && node.Mode&unix.S_IFMT == unix.S_IFBLK {
		link, err := os.Readlink(filepath.Join(sysfs, "dev", "block", fmt.Sprintf("%d:%d", unix.Major(node.Rdev), unix.Minor(node.Rdev))))
		if err == nil {
			return filepath.Base(link)
		}
	}
	mapped, ok := strings.CutPrefix(name, "mapper/")
	if group, volume, two := strings.Cut(name, "/"); !ok && two {
		if _, err := os.Stat(filepath.Join(sysfs, "class", "block", strings.ReplaceAll(name, "/", "!"))); err != nil {
			// A logical volume; LVM doubles the hyphens of its parts.
			double := strings.NewReplacer("-", "--")
			mapped, ok = double.Replace(group)+"-"+double.Replace(volume), true
		}
	}
	if ok {
		names, _ := filepath.Glob(filepath.Join(sysfs, "block", "dm-*", "dm", "name"))
		for _, file := range names {
			if attribute(file) == mapped {
				return filepath.Base(filepath.Dir(filepath.Dir(file)))
			}
		}
		return ""
	}
	if name = strings.ReplaceAll(name, "/", "!"); !element(name) {
		return ""
	}
	if _, err := os.Stat(filepath.Join(sysfs, "class", "block", name)); err != nil {
		return ""
	}
	return name
}
