package volume

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Devices turns device numbers into the kernel's names of whole disks: the names that
// node_exporter and ebpf_exporter use.
type Devices struct {
	sysfs string
}

// NewDevices returns Devices that look below sysfs.
func NewDevices(sysfs string) Devices { return Devices{sysfs} }

// Of returns the disk a file system lies on. A partition's disk is the whole one, because
// that is what the block layer accounts to.
func (d Devices) Of(m Mount) (string, error) {
	number := m.Device
	if strings.HasPrefix(number, "0:") {
		// An anonymous number (btrfs, overlay): only the source can name a device.
		var err error
		if number, err = numberOf(m.Source); err != nil {
			return "", fmt.Errorf("mount %s is on no block device: %w", m.Point, err)
		}
	}
	path, err := filepath.EvalSymlinks(filepath.Join(d.sysfs, "dev", "block", number))
	if err != nil {
		return "", fmt.Errorf("device %s of mount %s: %w", number, m.Point, err)
	}
	if _, err := os.Stat(filepath.Join(path, "partition")); err == nil {
		path = filepath.Dir(path)
	}
	return filepath.Base(path), nil
}

func numberOf(source string) (string, error) {
	if !strings.HasPrefix(source, "/dev/") {
		return "", fmt.Errorf("its source is %q", source)
	}
	var s unix.Stat_t
	if err := unix.Stat(source, &s); err != nil {
		return "", fmt.Errorf("%s: %w", source, err)
	}
	return fmt.Sprintf("%d:%d", unix.Major(s.Rdev), unix.Minor(s.Rdev)), nil
}
