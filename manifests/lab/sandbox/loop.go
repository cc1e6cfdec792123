package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// loopMark is how the names of a lab's loop devices begin. They are visible in all mount namespaces, in which the
// folders of several labs may have one path: so it identifies the folder itself.
func loopMark(dir string) (string, error) {
	var s unix.Stat_t
	if err := unix.Stat(dir, &s); err != nil {
		return "", fmt.Errorf("the lab's folder %s: %w", dir, err)
	}
	return fmt.Sprintf("plumbline-lab:%x:%x:", s.Dev, s.Ino), nil
}

// AttachLoop attaches a file of the lab in dir to a free loop device with direct I/O and returns the device, open.
// The device frees itself when nothing uses it any more: close the file once it is mounted.
func AttachLoop(dir, file string) (*os.File, error) {
	mark, err := loopMark(dir)
	if err != nil {
		return nil, err
	}
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer backing.Close()
	control, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("loop devices: %w", err)
	}
	defer control.Close()

	config := unix.LoopConfig{Fd: uint32(backing.Fd()), Size: 4096}
	config.Info.Flags = unix.LO_FLAGS_AUTOCLEAR | unix.LO_FLAGS_DIRECT_IO
	copy(config.Info.File_name[:unix.LO_NAME_SIZE-1], mark+file)
	for {
		n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
		if err != nil {
			return nil, fmt.Errorf("finding a free loop device: %w", err)
		}
		device, err := os.OpenFile(fmt.Sprintf("/dev/loop%d", n), os.O_RDWR, 0)
		if err != nil {
			return nil, err
		}
		err = unix.IoctlLoopConfigure(int(device.Fd()), &config)
		if err == nil {
			return device, nil
		}
		device.Close()
		// Another program took the device between the two calls: retry.
		if !errors.Is(err, unix.EBUSY) {
			return nil, fmt.Errorf("attaching %s to /dev/loop%d: %w", file, n, err)
		}
	}
}

// DetachLoops detaches the loop devices that a killed lab left behind and waits until the
// kernel has let go of them.
func DetachLoops(dir string, deadline time.Duration) error {
	end := time.Now().Add(deadline)
	for {
		left, err := loops(dir)
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("loop devices %s do not detach; see `losetup -a`", strings.Join(left, " "))
		}
		for _, device := range left {
			if f, err := os.OpenFile(device, os.O_RDWR, 0); err == nil {
				_ = unix.IoctlSetInt(int(f.Fd()), unix.LOOP_CLR_FD, 0)
				f.Close()
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// loops lists the loop devices that carry the lab's mark.
func loops(dir string) ([]string, error) {
	mark, err := loopMark(dir)
	if err != nil {
		return nil, err
	}
	attached, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		return nil, err
	}
	var found []string
	for _, path := range attached {
		device := "/dev/" + strings.Split(path, "/")[3]
		f, err := os.Open(device)
		if err != nil {
			continue
		}
		info, err := unix.IoctlLoopGetStatus64(int(f.Fd()))
		f.Close()
		if err == nil && strings.HasPrefix(unix.ByteSliceToString(info.File_name[:]), mark) {
			found = append(found, device)
		}
	}
	return found, nil
}
