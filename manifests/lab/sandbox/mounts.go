package sandbox

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// unmountBelow unmounts what is mounted below dir in this process's own namespace, the
// innermost first. It guards RemoveAll: nothing mounted is ever emptied.
func unmountBelow(dir string) error {
	self, err := procfs.Self()
	if err != nil {
		return err
	}
	mounts, err := self.MountInfo()
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if !strings.HasPrefix(m.MountPoint, dir+"/") {
			continue
		}
		if err := unix.Unmount(m.MountPoint, unix.UMOUNT_NOFOLLOW); err != nil {
			return fmt.Errorf("unmounting %s: %w", m.MountPoint, err)
		}
	}
	return nil
}
