package disk

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxInfo bounds what is read of a descriptor's fdinfo.
const maxInfo = 4096

// MountOf returns the kernel's number of the mount that an open file, which may be one of O_PATH, is seen through: the
// first field of its line in mountinfo (proc_pid_mountinfo(5)). It is 0 if the kernel does not report it. No file
// system is accessed. What a file system calls its device (st_dev) is in no mount table on btrfs, where each subvolume
// has a number of its own.
func MountOf(fd int) uint64 {
	var s unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_MNT_ID, &s)
	if err == nil && s.Mask&unix.STATX_MNT_ID != 0 {
		return s.Mnt_id
	}
	return mountOfInfo(fd) // before Linux 5.8
}

// mountOfInfo is MountOf by procfs' report of the descriptor.
func mountOfInfo(fd int) uint64 {
	info, err := os.Open(fmt.Sprintf("/proc/self/fdinfo/%d", fd))
	if err != nil {
		return 0
	}
	defer info.Close()
	lines := bufio.NewScanner(io.LimitReader(info, maxInfo))
	for lines.Scan() {
		if number, ok := strings.CutPrefix(lines.Text(), "mnt_id:"); ok {
			n, _ := strconv.ParseUint(strings.TrimSpace(number), 10, 64)
			return n
		}
	}
	return 0
}
