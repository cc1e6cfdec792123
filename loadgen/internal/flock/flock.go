// Package flock locks files against other processes, as long as they are open. The kernel frees a lock when its process
// ends, however that is.
package flock

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// ErrHeld is that another process has locked the file.
var ErrHeld = errors.New("another process has locked it")

// Kernel is the kernel's lock; a test may take another, beside no other test.
var Kernel = unix.Flock

// Lock locks a file, and does not wait. unlocked is why nothing keeps others from it: its file system has no locks, as
// NFS without a lock manager. An NFS locks only what is open for writing.
func Lock(f *os.File) (unlocked, err error) {
	switch err := Kernel(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case err == nil:
		return nil, nil
	case noLocks(err):
		return err, nil
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, ErrHeld
	default:
		return nil, err
	}
}

// Unlock frees a file at once, also while a process that is just being started holds a copy of the descriptor.
func Unlock(f *os.File) error {
	if err := Kernel(int(f.Fd()), unix.LOCK_UN); err != nil && !noLocks(err) {
		return err
	}
	return nil
}

// noLocks reports whether an error means that a file system has no locks.
func noLocks(err error) bool {
	return errors.Is(err, unix.ENOLCK) || errors.Is(err, errors.ErrUnsupported)
}
