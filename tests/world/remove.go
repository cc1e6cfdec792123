package world

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// file is a file's identity, whatever path a mount namespace gives it.
type file struct{ device, inode uint64 }

// remove detaches the loop devices whose files are in the folder, as tests that were killed could not, and removes it.
func remove(dir string) {
	files := map[file]bool{}
	// What cannot be read is left out: the folder is removed all the same.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			s := info.Sys().(*syscall.Stat_t)
			files[file{s.Dev, s.Ino}] = true
		}
		return nil
	})
	devices, _ := filepath.Glob("/dev/loop[0-9]*")
	for _, path := range devices {
		if err := detach(path, files); err != nil {
			fmt.Fprintf(os.Stderr, "world: detaching %s: %v\n", path, err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		fmt.Fprintln(os.Stderr, "world:", err)
	}
}

// detach detaches a loop device from its file if that is one of the files. A device without a file is none of ours.
func detach(path string, files map[file]bool) error {
	device, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer device.Close()
	status, err := unix.IoctlLoopGetStatus64(int(device.Fd()))
	if err != nil || !files[file{status.Device, status.Inode}] {
		return nil
	}
	return unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0)
}
