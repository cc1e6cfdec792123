package nvmeof

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Serving says whether a target of this machine's kernel can serve somebody: its module has at least one
// transport.
func Serving(sysfs string) bool {
	holders, err := os.ReadDir(filepath.Join(sysfs, "module", "nvmet", "holders"))
	return err == nil && len(holders) > 0
}

// Backing returns what a target's namespace is made of, as it was configured, and the block device below it
// if that is one; both are empty if configfs is not to be seen.
func Backing(sysfs, nqn string, namespace uint32) (path, device string) {
	if nqn == "" || nqn == "." || nqn == ".." || strings.ContainsRune(nqn, '/') {
		return "", ""
	}
	path = attribute(sysfs, "kernel", "config", "nvmet", "subsystems", nqn, "namespaces", strconv.Itoa(int(namespace)), "device_path")
	return path, blockDevice(sysfs, path)
}

// blockDevice is the kernel's name of the block device with this path. No file system is asked: a link
// of the device mapper or of LVM is found by its name, others are not.
func blockDevice(sysfs, path string) string {
	name, ok := strings.CutPrefix(path, "/dev/")
	if !ok {
		return ""
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
	if name = strings.ReplaceAll(name, "/", "!"); name == "" || name == "." || name == ".." {
		return ""
	}
	if _, err := os.Stat(filepath.Join(sysfs, "class", "block", name)); err != nil {
		return ""
	}
	return name
}
