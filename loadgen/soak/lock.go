package soak

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFile is locked while a soak runs on its folder. The kernel frees it when the soak ends, however that is. Reading does not need it.
const lockFile = "soak.lock"

// flock is the kernel's; a test may take another.
var flock = unix.Flock

// lockFolder keeps other soaks from a folder until unlock. unlocked is why it does not: the file system has no locks.
func lockFolder(folder string) (f *os.File, unlocked, err error) {
	path := filepath.Join(folder, lockFile)
	if f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return nil, nil, err
	}
	switch err := flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return f, nil, nil
	case noLocks(err):
		return f, fmt.Errorf("%s: %w", path, err), nil
	case errors.Is(err, unix.EWOULDBLOCK):
		err = fmt.Errorf("%s: another soak runs on this folder", folder)
		return nil, nil, errors.Join(err, f.Close())
	default:
		return nil, nil, errors.Join(fmt.Errorf("%s: it cannot be locked: %w", path, err), f.Close())
	}
}

// unlock frees a folder at once, also while a process that is just being started holds a copy of the descriptor.
func unlock(f *os.File) error {
	err := flock(int(f.Fd()), unix.LOCK_UN)
	if noLocks(err) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// noLocks says whether an error means that a file system has no locks.
func noLocks(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, errors.ErrUnsupported)
}
