package sandbox

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Mounted is a volume that is ready for a database.
type Mounted struct {
	directory string
	device    string
}

// Mount makes directory a volume owned by owner, of the lab in dir. With file it is an ext4 file system on a
// loop device over it, made if it is not there yet; without, it is a plain directory.
func Mount(dir, file, directory, owner string) (*Mounted, error) {
	m := &Mounted{directory: directory}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, err
	}
	if file != "" {
		leaveFormer(directory)
		device, err := AttachLoop(dir, file)
		if err != nil {
			return nil, err
		}
		// Once mounted, the mount keeps the device; without one it frees itself here.
		defer device.Close()
		m.device = device.Name()
		if err := mountExt4(m.device, directory); err != nil {
			return nil, err
		}
	}
	if err := chown(directory, owner); err != nil {
		m.Unmount()
		return nil, err
	}
	return m, nil
}

// leaveFormer takes away what a killed holder has left mounted: its device may be gone, and who
// still has files open there keeps them.
func leaveFormer(directory string) {
	for unix.Unmount(directory, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) == nil {
	}
}

func mountExt4(device, directory string) error {
	fresh, err := isBlank(device)
	if err != nil {
		return err
	}
	if fresh {
		// The inode tables are written at once: written later, in the background, they
		// would disturb what is measured.
		out, err := exec.Command("mkfs.ext4", "-q", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0", device).CombinedOutput()
		if err != nil {
			return fmt.Errorf("mkfs.ext4 on %s: %w: %s", device, err, out)
		}
	}
	if err := unix.Mount(device, directory, "ext4", unix.MS_NOATIME, ""); err != nil {
		return fmt.Errorf("mounting %s on %s: %w", device, directory, err)
	}
	return nil
}

// isBlank reports whether a device has never been written where a file system begins. One that cannot be read is not
// blank: its content would be lost.
func isBlank(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	begin := make([]byte, 64<<10)
	if _, err := io.ReadFull(f, begin); err != nil {
		return false, fmt.Errorf("reading %s: %w; is what serves it running?", device, err)
	}
	return !slices.ContainsFunc(begin, func(b byte) bool { return b != 0 }), nil
}

// Device is the kernel's name of the volume's own block device, empty for a plain directory.
func (m *Mounted) Device() string { return m.device }

// Unmount takes the volume away again; its data stays.
func (m *Mounted) Unmount() error {
	if m.device == "" {
		return nil
	}
	if err := unix.Unmount(m.directory, unix.UMOUNT_NOFOLLOW); err != nil {
		return fmt.Errorf("unmounting %s: %w", m.directory, err)
	}
	return nil
}

func chown(path, owner string) error {
	u, err := user.Lookup(owner)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// MakeOwned makes a folder that belongs to an unprivileged user.
func MakeOwned(path, owner string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return err
	}
	if err := os.Chmod(path, mode); err != nil {
		return err
	}
	return chown(path, owner)
}
